import type { ChildProcess } from 'node:child_process'
import { randomBytes } from 'node:crypto'
import { readdirSync, readFileSync, statSync, writeFileSync } from 'node:fs'
import type { RequestListener } from 'node:http'
import { createServer, type Server } from 'node:https'
import type { AddressInfo } from 'node:net'
import { join } from 'node:path'
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest'
import { makeCertificate } from '../../../support/host-wing/image-server.ts'
import { microvm } from '../../../support/microvm/run-microvm.ts'
import { endChild } from '../../../support/processes.ts'
import { temporaryFolder } from '../../../support/temporary-folder.ts'
import { BOOTED, bootDisk } from '../../../support/wing/boot-disk.ts'
import { startDaemonProcess } from '../../../support/wing/daemon-process.ts'
import { leftovers } from '../../../support/wing/leftovers.ts'
import { addCurlModule } from './curl-module.ts'
import { commandLines, filesWith } from './search.ts'

const UUID = '6b3f0c62-3d1e-4f0a-9a55-0f4f8f0c2d11'
const DISK = bootDisk(2 ** 20)
const TRUSTED = '/etc/ssl/certs/ca-certificates.crt'

describe('a disk of a server that asks who it is for', () => {
  const folder = temporaryFolder()
  const state = join(folder, 's')
  const password = `pass ${randomBytes(8).toString('hex')}`
  const asked: string[] = []
  const answers: string[] = []
  let log = ''
  let server: Server
  let url: string
  let daemon: ChildProcess
  let addModule: string | undefined

  const serve: RequestListener = (request, answer) => {
    asked.push(request.headers.authorization ?? '')
    if (request.headers.authorization !== `Basic ${Buffer.from(`web:${password}`).toString('base64')}`)
      return void answer.writeHead(401, { 'www-authenticate': 'Basic realm="disks"' }).end()
    const [, first = 0, last = DISK.length - 1] =
      /^bytes=(\d+)-(\d+)$/.exec(request.headers.range ?? '') ?? []
    const part = DISK.subarray(Number(first), Number(last) + 1)
    answer.writeHead(request.headers.range === undefined ? 200 : 206, {
      'accept-ranges': 'bytes',
      'content-length': part.length,
      'content-range': `bytes ${first}-${Number(first) + part.length - 1}/${DISK.length}`,
    })
    answer.end(request.method === 'HEAD' ? undefined : part)
  }

  beforeAll(async () => {
    addModule = await addCurlModule()
    const certificate = makeCertificate()
    server = createServer(certificate, serve)
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
    url = `https://127.0.0.1:${(server.address() as AddressInfo).port}/disk.raw`
    const trusted = join(folder, 'trusted.crt')
    writeFileSync(trusted, Buffer.concat([readFileSync(TRUSTED), certificate.cert]))
    const catalogue = join(folder, 'catalogue.toml')
    const text = `[secrets.of-web]
id = "${UUID}"
[volumes.install]
url = "${url}"
username = "web"
secret = "of-web"
`
    writeFileSync(catalogue, text, { mode: 0o644 })
    writeFileSync(join(folder, 'daemon.toml'), `catalogue = "${catalogue}"\n`)
    const mount = `${addModule ?? 'true'} && mount --bind "${trusted}" "$(readlink -f ${TRUSTED})" && exec "$@"`
    daemon = await startDaemonProcess(state, {
      enter: ['unshare', '--mount', 'sh', '-c', mount, 'sh'],
      words: ['--config', join(folder, 'daemon.toml')],
    })
    daemon.stderr?.on('data', (chunk) => {
      log += chunk
    })
  })
  afterEach(async () => {
    await run('rm', 'web')
  })
  afterAll(async () => {
    await endChild(daemon)
    server.close()
    server.closeAllConnections()
    expect(leftovers(state)).toEqual([])
  })

  async function run(...words: readonly string[]) {
    const done = await microvm([...words, '--socket', join(state, 'admin.sock')])
    answers.push(done.stdout, done.stderr)
    return done
  }

  async function setSecret(text: string) {
    const file = join(folder, 'value')
    writeFileSync(file, text)
    expect(await run('secret', 'set', UUID, file)).toMatchObject({ status: 0 })
  }

  function ensure(disk = '{source: install, readonly: true, bootOrder: 1}') {
    const file = join(folder, 'web.yaml')
    const features = `{memory: 64, storage: [${disk}]}`
    writeFileSync(file, `kind: VM\nmetadata: {name: web}\nspec: {features: ${features}}\n`)
    return run('ensure', file)
  }

  const own = () => join(state, 'instances', readdirSync(join(state, 'instances'))[0] ?? '')

  it('is refused by name to be written, without its secret, and by its server', async (context) => {
    context.skip(addModule === undefined, 'Debian has qemu-block-extra for another QEMU than this one')
    expect((await ensure('{source: install}')).stderr).toContain(
      'spec.features.storage[0].readonly: "install" is read-only, want true',
    )
    expect((await ensure()).stderr).toContain(
      `FAILED_PRECONDITION: backends.disk0-backend.secret: secret ${UUID}: not found`,
    )
    await setSecret(`${password}x`)
    const { stderr } = await ensure()
    expect(stderr).toContain(`FAILED_PRECONDITION: backends.disk0-backend: ${url}: `)
    expect(stderr).toContain('returned error: 401')
    expect((await ensure('{source: install, readonly: true, io: threads}')).stderr).toContain(
      'devices.disk0.io: threads: of a file only',
    )
  })

  it('boots a machine that has no network, by a password that is nowhere else', async (context) => {
    context.skip(addModule === undefined, 'Debian has qemu-block-extra for another QEMU than this one')
    await setSecret(password)
    expect((await ensure()).stdout).toBe('web: paused\n')
    const { qemu_pid: pid } = JSON.parse((await run('inspect', 'web', '--json')).stdout)
    expect(readFileSync(`/proc/${pid}/net/dev`, 'utf8').trim().split('\n')).toHaveLength(3)
    const held = commandLines(url)
    expect(held.filter((text) => text.startsWith('qemu-storage-daemon'))).toHaveLength(1)
    expect(readFileSync(`/proc/${pid}/cmdline`, 'latin1')).not.toContain(url)
    await run('start', 'web')
    const ring = join(own(), 'console.ring')
    await expect.poll(() => readFileSync(ring).includes(BOOTED), { timeout: 60_000 }).toBe(true)
    const [socket = ''] = readdirSync(join(own(), 'run')).filter((name) => name.startsWith('nbd-'))
    const user = statSync(`/proc/${pid}`).uid
    expect(user).not.toBe(0)
    expect(statSync(join(own(), 'run', socket)).uid).toBe(user)
    expect(statSync(join(own(), 'run')).mode & 0o077).toBe(0)
    const told = [log, ...answers, ...held, ...commandLines(folder)].join('\n')
    for (const text of [password, Buffer.from(`web:${password}`).toString('base64')])
      expect(told).not.toContain(text)
    expect(filesWith(state, password)).toEqual([join(state, 'secrets/admin', UUID)])
    expect(asked.at(-1)).toMatch(/^Basic /)
    await run('kill', 'web')
    expect(commandLines(url)).toEqual([])
  })
})
