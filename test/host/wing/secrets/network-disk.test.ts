import type { ChildProcess } from 'node:child_process'
import { randomBytes } from 'node:crypto'
import { once } from 'node:events'
import { readdirSync, readFileSync, statSync, writeFileSync } from 'node:fs'
import { createServer, type Server } from 'node:https'
import type { AddressInfo } from 'node:net'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest'
import { neverAborted } from '../../../../src/base/abort.ts'
import { projectRoot } from '../../../../src/build/project.ts'
import { connectQmp } from '../../../../src/host/qemu/qmp/connect.ts'
import { instanceFolderName, specKey } from '../../../../src/host/spec/spec-key.ts'
import { makeCertificate } from '../../../support/host-wing/image-server.ts'
import { daemonClient } from '../../../support/host-wing/running-daemon.ts'
import { microvm } from '../../../support/microvm/run-microvm.ts'
import { endChild } from '../../../support/processes.ts'
import { temporaryFolder } from '../../../support/temporary-folder.ts'
import { BOOTED, bootDisk } from '../../../support/wing/boot-disk.ts'
import { startDaemonProcess } from '../../../support/wing/daemon-process.ts'
import { io } from '../../../support/wing/layer-bytes.ts'
import { leftovers } from '../../../support/wing/leftovers.ts'
import { type DiskPackages, diskByHttp, diskByIscsi, diskPackages, TARGET } from './disk-servers.ts'
import { commandLines, filesWith } from './search.ts'

const UUID = '6b3f0c62-3d1e-4f0a-9a55-0f4f8f0c2d11'
const DISK = bootDisk(2 ** 20)
const TRUSTED = '/etc/ssl/certs/ca-certificates.crt'
const NO_PACKAGES = 'Debian has qemu-block-extra for another QEMU than this one'

describe('a disk of a server that asks who it is for', () => {
  const folder = temporaryFolder()
  const state = join(folder, 's')
  const written = join(folder, 'written.img')
  const password = `pass-${randomBytes(6).toString('hex')}`
  const asked: string[] = []
  const answers: string[] = []
  let log = ''
  let server: Server
  let url: string
  let iscsi: Awaited<ReturnType<typeof diskByIscsi>> | undefined
  let packages: DiskPackages | undefined
  let mount = ''
  let daemon: ChildProcess

  beforeAll(async () => {
    packages = await diskPackages()
    const certificate = makeCertificate()
    server = createServer(certificate, diskByHttp(DISK, password, asked))
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
    url = `https://127.0.0.1:${(server.address() as AddressInfo).port}/disk.raw`
    writeFileSync(written, DISK)
    iscsi = packages && (await diskByIscsi(packages, written, password))
    const trusted = join(folder, 'trusted.crt')
    writeFileSync(trusted, Buffer.concat([readFileSync(TRUSTED), certificate.cert]))
    const catalogue = join(folder, 'catalogue.toml')
    const login = 'username = "web"\nsecret = "of-web"\n'
    const text = `[secrets.of-web]\nid = "${UUID}"
[volumes.install]\nurl = "${url}"\n${login}
[volumes.unit]\nurl = "iscsi://${iscsi?.portal ?? '127.0.0.1'}/${TARGET}/1"\n${login}`
    writeFileSync(catalogue, text, { mode: 0o644 })
    writeFileSync(join(folder, 'daemon.toml'), `catalogue = "${catalogue}"\n`)
    mount = `mount --bind "${trusted}" "$(readlink -f ${TRUSTED})" && ${packages?.mount ?? 'true'} && exec "$@"`
    await start()
  })
  afterEach(async () => {
    for (const key of ['web', 'other']) await run('rm', key)
  })
  afterAll(async () => {
    await endChild(daemon)
    await iscsi?.close()
    server.close()
    server.closeAllConnections()
    expect(leftovers(state)).toEqual([])
  })

  async function start(env: Readonly<Record<string, string>> = {}) {
    daemon = await startDaemonProcess(state, {
      env,
      enter: ['unshare', '--mount', 'sh', '-c', mount, 'sh'],
      words: ['--config', join(folder, 'daemon.toml')],
    })
    daemon.stderr?.on('data', (chunk) => {
      log += chunk
    })
  }

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

  function ensure(disk: string, key = 'web') {
    const file = join(folder, 'vm.yaml')
    const features = `{memory: 64, storage: [{${disk}, bootOrder: 1}]}`
    writeFileSync(file, `kind: VM\nmetadata: {name: ${key}}\nspec: {features: ${features}}\n`)
    return run('ensure', file)
  }

  /** A machine without a disk, and its file with one more. */
  function bare(key = 'web') {
    const file = join(folder, 'vm.yaml')
    writeFileSync(file, `kind: VM\nmetadata: {name: ${key}}\nspec: {features: {memory: 64}}\n`)
    return run('ensure', file)
  }

  function plug(disk: string, key = 'web') {
    const file = join(folder, 'more.yaml')
    writeFileSync(file, `storage: [{${disk}}]\n`)
    return run('plug', key, 'data', file)
  }

  const runningDaemons = () =>
    commandLines(state, `":"${iscsi?.portal}"`).concat(commandLines(state, `":"${url}"`))

  /** What there is of the plugged disk in the three machines and on the host. */
  async function traces(): Promise<readonly string[]> {
    const { configurations } = JSON.parse((await run('inspect', 'web', '--json')).stdout)
    const has = (name: string) => configurations[name].includes('data-backend')
    const sockets = readdirSync(join(own(), 'run')).filter((name) => name.startsWith('nbd-'))
    return [
      ...['saved', 'desired', 'current'].filter(has),
      ...sockets.map(() => 'socket'),
      ...runningDaemons().map(() => 'daemon'),
    ]
  }

  const INSTALL = 'source: install, readonly: true'
  const own = () => join(state, 'instances', instanceFolderName(specKey('web')))
  const qemuPid = async (): Promise<number> =>
    JSON.parse((await run('inspect', 'web', '--json')).stdout).qemu_pid

  it('is refused by name to be written, without its secret, and by its server', async (context) => {
    context.skip(packages === undefined, NO_PACKAGES)
    expect((await ensure('source: install')).stderr).toContain(
      'spec.features.storage[0].readonly: "install" is read-only, want true',
    )
    expect((await ensure(INSTALL)).stderr).toContain(
      `FAILED_PRECONDITION: spec.features.storage[0].source: secret ${UUID}: not found`,
    )
    await setSecret(`${password}x`)
    expect((await ensure(INSTALL)).stderr).toContain(
      'FAILED_PRECONDITION: backends.disk0-backend: CURL: Error opening file: The requested URL returned error: 401',
    )
    expect((await ensure('source: unit')).stderr).toMatch(
      /FAILED_PRECONDITION: backends\.disk0-backend: iSCSI: .*Authentication failure/,
    )
    expect((await ensure(`${INSTALL}, io: threads`)).stderr).toContain(
      'spec.features.storage[0].io: threads: of a file only',
    )
  })

  it.for([
    ['https', INSTALL],
    ['iscsi', 'source: unit'],
  ])(
    'by %s boots a machine that has no network, by a password that is nowhere else',
    async ([scheme = '', disk = ''], context) => {
      context.skip(packages === undefined, NO_PACKAGES)
      await setSecret(password)
      expect((await ensure(disk)).stdout).toBe('web: paused\n')
      const pid = await qemuPid()
      expect(readFileSync(`/proc/${pid}/net/dev`, 'utf8').trim().split('\n')).toHaveLength(3)
      const held = commandLines(state, `"driver":"${scheme}"`)
      expect(held).toHaveLength(1)
      expect(readFileSync(`/proc/${pid}/cmdline`, 'latin1')).not.toContain(scheme)
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
      await run('kill', 'web')
      expect(commandLines(state, `"driver":"${scheme}"`)).toEqual([])
    },
  )

  it.for([
    ['https', INSTALL],
    ['iscsi', 'source: unit'],
  ])('by %s is plugged into a machine that runs, and unplugged', async ([, disk = ''], context) => {
    context.skip(packages === undefined, NO_PACKAGES)
    await setSecret(password)
    await bare()
    await run('start', 'web')
    expect(await plug(disk)).toMatchObject({ status: 0 })
    const { backends } = JSON.parse((await run('inspect', 'web', '--json')).stdout)
    expect(backends['data-backend']).toMatchObject({ health: 'READY', size_bytes: `${DISK.length}` })
    expect(await traces()).toEqual(['saved', 'desired', 'current', 'socket', 'daemon'])
    expect([log, ...answers, ...commandLines(folder)].join('\n')).not.toContain(password)
    expect(filesWith(state, password)).toEqual([join(state, 'secrets/admin', UUID)])
    await run('unplug', 'web', 'data', '--grace', '1')
    // Nothing runs in the guest that would let it go.
    expect(await run('reset', 'web')).toMatchObject({ status: 0 })
    await expect.poll(traces, { timeout: 10_000 }).toEqual([])
    expect(await plug(disk)).toMatchObject({ status: 0 })
  })

  it('leaves nothing behind when it cannot be plugged', async (context) => {
    context.skip(packages === undefined, NO_PACKAGES)
    await bare()
    await run('secret', 'rm', UUID)
    expect((await plug(INSTALL)).stderr).toContain(
      `FAILED_PRECONDITION: backends.data-backend.secret: secret ${UUID}: not found, want it set before`,
    )
    await setSecret(`${password}x`)
    expect((await plug('source: unit')).stderr).toMatch(
      /FAILED_PRECONDITION: backends\.data-backend: iSCSI: .*Authentication failure/,
    )
    await setSecret(password)
    expect((await ensure('source: unit', 'other')).stdout).toBe('other: paused\n')
    expect((await plug('source: unit')).stderr).toContain(
      'FAILED_PRECONDITION: backends.data-backend: instance other has this disk, want it stopped',
    )
    await run('rm', 'other')
    expect(await traces()).toEqual([])
    expect(await plug('source: unit')).toMatchObject({ status: 0 })
    expect((await ensure('source: unit', 'other')).stderr).toContain(
      'spec.features.storage[0].source: instance web has this disk, want it stopped',
    )
  })

  it.for(['blockdev-add', 'device_add'])(
    'leaves nothing behind when the daemon dies at %s',
    async (command, context) => {
      context.skip(packages === undefined, NO_PACKAGES)
      await setSecret(password)
      await bare()
      await endChild(daemon)
      const preload = join(projectRoot, 'test/support/wing/deaths/die-at-call.ts')
      await start({ NODE_OPTIONS: `--import=${preload}`, DIE_AT_COMMAND: command })
      const death = once(daemon, 'exit')
      const client = daemonClient(join(state, 'admin.sock'))
      const features = 'storage: [{source: unit}]'
      const plugged = client.instances.plug({ key: 'web', deviceKey: 'data', features })
      await expect(plugged).rejects.toMatchObject({ code: 'UNAVAILABLE' })
      client.close()
      expect(await death).toEqual([null, 'SIGKILL'])
      expect(runningDaemons()).toHaveLength(1)
      await start()
      await expect.poll(traces).toEqual([])
      expect(await plug('source: unit')).toMatchObject({ status: 0 })
    },
  )

  it('costs the guest no more than itself when its server stalls', async (context) => {
    context.skip(iscsi === undefined, NO_PACKAGES)
    await setSecret(password)
    await ensure('source: unit')
    const pid = iscsi?.pid ?? 0
    process.kill(pid, 'SIGSTOP')
    try {
      await run('start', 'web')
      // Its firmware has asked for the first sectors by then.
      await sleep(3000)
      expect(await run('pause', 'web')).toMatchObject({ status: 0, stdout: 'web: paused\n' })
    } finally {
      process.kill(pid, 'SIGCONT')
    }
    const { backends } = JSON.parse((await run('inspect', 'web', '--json')).stdout)
    expect(backends['disk0-backend']).toMatchObject({ health: 'DEAD' })
    expect(log).toMatch(
      /"msg":"daemon of a network disk killed".*"daemon":"nbd-\w+","reason":"QEMU is slow to answer `stop`"/,
    )
  })

  it('leaves nothing behind when it is unplugged', async (context) => {
    context.skip(packages === undefined, NO_PACKAGES)
    await setSecret(password)
    await ensure('source: unit, name: data, interface: virtio-scsi')
    expect(await run('unplug', 'web', 'data')).toMatchObject({ status: 0 })
    expect(commandLines(state, '"driver":"iscsi"')).toEqual([])
    expect((await ensure('source: unit', 'other')).stdout).toBe('other: paused\n')
    await endChild(daemon)
    const qmp = await connectQmp(join(own(), 'qmp.sock'), neverAborted)
    expect(await qmp.execute('query-named-block-nodes', { flat: true }, neverAborted)).toEqual([])
    qmp.close()
    await start()
  })

  it('by iscsi is written by one machine at a time, and has no snapshots here', async (context) => {
    context.skip(packages === undefined, NO_PACKAGES)
    await setSecret(password)
    await ensure('source: unit, name: data')
    expect((await ensure('source: unit', 'other')).stderr).toContain(
      'FAILED_PRECONDITION: spec.features.storage[0].source: instance web has this disk, want it stopped',
    )
    expect((await run('snapshot', 'web', 'one', '--disks', 'data')).stderr).toContain(
      'devices.data: a server has it, and may have snapshots of its own',
    )
    await endChild(daemon)
    const qmp = await connectQmp(join(own(), 'qmp.sock'), neverAborted)
    await io(qmp, 'data', 'write -P 7 65536 65536')
    await io(qmp, 'data', 'flush')
    qmp.close()
    await start()
    const health = async () =>
      JSON.parse((await run('inspect', 'web', '--json')).stdout).backends['data-backend']
    expect(await health()).toMatchObject({ health: 'READY', size_bytes: `${DISK.length}`, locks: ['write'] })
    const [, pid] = /^nbd-\S+ (\d+) running$/m.exec(readFileSync(join(own(), 'exits'), 'utf8')) ?? []
    process.kill(Number(pid), 'SIGKILL')
    await expect.poll(health).toMatchObject({ health: 'DEAD' })
    expect(readFileSync(written).subarray(65_536, 131_072)).toEqual(Buffer.alloc(65_536, 7))
  })
})
