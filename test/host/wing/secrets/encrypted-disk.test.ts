import type { ChildProcess } from 'node:child_process'
import { execFileSync } from 'node:child_process'
import { randomBytes } from 'node:crypto'
import { mkdirSync, readdirSync, readFileSync, statSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { Backend, Device, File_Access, Instance } from '../../../../src/gen/microvm/instance/v1/instance.ts'
import { instanceJson } from '../../../../src/microvm/machines/command.ts'
import { microvm } from '../../../support/microvm/run-microvm.ts'
import { endChild } from '../../../support/processes.ts'
import { temporaryFolder } from '../../../support/temporary-folder.ts'
import { BOOTED, bootDisk } from '../../../support/wing/boot-disk.ts'
import { startDaemonProcess } from '../../../support/wing/daemon-process.ts'
import { leftovers } from '../../../support/wing/leftovers.ts'
import { specification } from '../../../support/wing/requests.ts'
import { luksImage } from './luks-image.ts'
import { commandLines, filesWith } from './search.ts'

const RIGHT = '6b3f0c62-3d1e-4f0a-9a55-0f4f8f0c2d11'
const WRONG = '0a7c6c1e-5f0e-4e4e-9a55-0f4f8f0c2d11'
const MISSING = '1a7c6c1e-5f0e-4e4e-9a55-0f4f8f0c2d11'
const FIELD = 'backends.root-file.file.encryption.secret'

describe('an encrypted disk', () => {
  const folder = temporaryFolder()
  const state = join(folder, 'state')
  const disk = join(folder, 'disk.luks')
  const value = `value-${randomBytes(12).toString('hex')}`
  let daemon: ChildProcess
  let log = ''
  const answers: string[] = []

  beforeAll(async () => {
    mkdirSync(join(folder, 'keys'))
    for (const [name, text] of [
      ['right', value],
      ['wrong', `${value}x`],
    ] as const)
      writeFileSync(join(folder, 'keys', name), text)
    writeFileSync(join(folder, 'plain'), bootDisk(2 ** 20))
    const key = ['--object', `secret,id=k,file=${join(folder, 'keys/right')}`]
    luksImage(disk, 1, value)
    const target = `driver=luks,key-secret=k,file.filename=${disk}`
    execFileSync('qemu-img', [
      'convert',
      '-n',
      ...key,
      '--target-image-opts',
      '-f',
      'raw',
      join(folder, 'plain'),
      target,
    ])
    daemon = await startDaemonProcess(state)
    daemon.stderr?.on('data', (chunk) => {
      log += chunk
    })
    expect(await run('secret', 'set', RIGHT, join(folder, 'keys/right'))).toMatchObject({
      status: 0,
      stdout: 'set\n',
    })
    expect(await run('secret', 'set', WRONG, join(folder, 'keys/wrong'))).toMatchObject({ status: 0 })
  })
  afterAll(async () => {
    // A test that failed has left it.
    await run('rm', 'web')
    await endChild(daemon)
    expect(leftovers(state)).toEqual([])
  })

  async function run(...words: readonly string[]) {
    const done = await microvm([...words, '--socket', join(state, 'admin.sock')])
    answers.push(done.stdout, done.stderr)
    return done
  }

  function ensure(secret: string, path = disk) {
    const root = { file: { path, access: File_Access.READ_WRITE, encryption: { secret } } }
    const described = specification({
      board: { kernel: '' },
      devices: {
        root: Device.fromPartial({ backend: 'root-file', slot: 5, disk: { serial: 'root' } }),
        console: Device.fromPartial({ backend: 'output', serial: {} }),
      },
      backends: { 'root-file': Backend.fromPartial(root), output: Backend.fromPartial({ console: {} }) },
    })
    const file = join(folder, 'web.json')
    const instance = Instance.fromPartial({ properties: { key: 'web' }, specification: described })
    writeFileSync(file, JSON.stringify(instanceJson(instance)))
    return run('ensure', file)
  }

  it('is refused by name with a secret that is not there or is not its own, and without LUKS', async () => {
    const missing = `ensure: FAILED_PRECONDITION: ${FIELD}: secret ${MISSING}: not found, want it set before`
    expect((await ensure(MISSING)).stderr).toContain(missing)
    expect((await ensure(WRONG)).stderr).toContain(
      `ensure: FAILED_PRECONDITION: ${FIELD}: ${WRONG} does not open ${disk}`,
    )
    const plain = join(folder, 'plain')
    expect((await ensure(RIGHT, plain)).stderr).toContain(
      `backends.root-file.file.path: ${plain}: not a LUKS image`,
    )
  })

  it('is read by a machine, and its secret is nowhere else', async () => {
    expect((await ensure(RIGHT)).stdout).toBe('web: paused\n')
    const { backends } = JSON.parse((await run('inspect', '--json', 'web')).stdout)
    expect(backends['root-file']).toMatchObject({ size_bytes: `${2 ** 20}` })
    const held = commandLines(folder)
    expect(held.filter((text) => text.includes('qemu-system'))).toHaveLength(1)
    await run('start', 'web')
    const ring = join(state, 'instances', readdirSync(join(state, 'instances'))[0] ?? '', 'console.ring')
    await expect.poll(() => readFileSync(ring).includes(BOOTED), { timeout: 60_000 }).toBe(true)
    for (const command of ['secret ls', 'secret ls --json', 'ps --json', 'calls --json', 'metrics'])
      await run(...command.split(' '))
    await run('rm', 'web')
    expect((await run('secret', 'ls')).stdout).toContain(RIGHT)
    const told = [log, ...answers, ...held, ...commandLines(folder)].join('\n')
    expect(told).toContain(RIGHT)
    expect(told).not.toContain(value)
    expect(filesWith(state, value)).toEqual([
      join(state, 'secrets/admin', WRONG),
      join(state, 'secrets/admin', RIGHT),
    ])
    for (const path of filesWith(state, value)) expect(statSync(path).mode & 0o777).toBe(0o600)
    expect(await run('secret', 'rm', RIGHT)).toMatchObject({ status: 0, stdout: 'removed\n' })
    expect(filesWith(state, value)).toHaveLength(1)
  })
})
