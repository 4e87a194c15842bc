import type { ChildProcess } from 'node:child_process'
import { randomBytes } from 'node:crypto'
import { once } from 'node:events'
import { mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest'
import { microvm } from '../../../support/microvm/run-microvm.ts'
import { endChild } from '../../../support/processes.ts'
import { temporaryFolder } from '../../../support/temporary-folder.ts'
import { attemptAs } from '../../../support/wing/as-user.ts'
import { startDaemonProcess } from '../../../support/wing/daemon-process.ts'
import { leftovers } from '../../../support/wing/leftovers.ts'
import { enterSpice, enterVnc } from './enter-screen.ts'
import { commandLines, filesWith } from './search.ts'

const UUID = '6b3f0c62-3d1e-4f0a-9a55-0f4f8f0c2d11'
const FIELD = 'backends.display0-backend.password'

describe('a screen with a password', () => {
  const folder = temporaryFolder()
  const state = join(folder, 's')
  // VNC has eight bytes.
  const [value, other] = [0, 1].map(() => randomBytes(4).toString('hex')) as [string, string]
  const config = join(folder, 'daemon.toml')
  let daemon: ChildProcess
  let log = ''
  const answers: string[] = []

  beforeAll(async () => {
    const catalogue = join(folder, 'catalogue.toml')
    writeFileSync(catalogue, `[secrets.of-screen]\nid = "${UUID}"\n`, { mode: 0o644 })
    writeFileSync(config, `catalogue = "${catalogue}"\n`)
    await start()
  })
  afterEach(async () => {
    await run('rm', 'web')
  })
  afterAll(async () => {
    await endChild(daemon)
    expect(leftovers(state)).toEqual([])
  })

  async function start(env = {}) {
    daemon = await startDaemonProcess(state, { words: ['--config', config], env })
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
    mkdirSync(join(folder, 'given'), { recursive: true })
    const file = join(folder, 'given', 'value')
    writeFileSync(file, text)
    expect(await run('secret', 'set', UUID, file)).toMatchObject({ status: 0 })
  }

  function ensure(graphics: string) {
    const file = join(folder, 'web.yaml')
    const features = `{memory: 64, graphics: {password: of-screen, ${graphics}}}`
    writeFileSync(file, `kind: VM\nmetadata: {name: web}\nspec: {features: ${features}}\n`)
    return run('ensure', file)
  }

  function own() {
    return join(state, 'instances', readdirSync(join(state, 'instances'))[0] ?? '')
  }

  const screen = () => join(own(), 'run/display0-backend.sock')

  it('is refused by name while its secret is missing, too long or no text', async () => {
    expect((await ensure('type: vnc')).stderr).toContain(
      `FAILED_PRECONDITION: ${FIELD}: secret ${UUID}: not found, want it set before`,
    )
    await setSecret('nine bytes')
    expect((await ensure('type: vnc')).stderr).toContain(
      `FAILED_PRECONDITION: ${FIELD}: the secret is too long, want at most 8 bytes`,
    )
    await setSecret('line\n')
    expect((await ensure('type: vnc')).stderr).toContain(
      `FAILED_PRECONDITION: ${FIELD}: the secret is no text, want one without an end of line`,
    )
    expect((await run('ps', '--json')).stdout).not.toContain('"web"')
  })

  it.each([
    ['vnc', enterVnc],
    ['spice', enterSpice],
  ] as const)('by %s lets in who knows it, at each start the present one', async (type, enter) => {
    await setSecret(value)
    expect((await ensure(`type: ${type}, passwordValidTo: 2099-01-01T00:00:00`)).stdout).toBe('web: paused\n')
    expect((await run('inspect', 'web')).stdout).not.toContain('not given here: devices.display0')
    expect([await enter(screen(), value), await enter(screen(), other)]).toEqual(['let in', 'refused'])
    await setSecret(other)
    expect(await enter(screen(), value)).toBe('let in')
    await run('kill', 'web')
    expect((await run('start', 'web')).stdout).toBe('web: running\n')
    expect([await enter(screen(), value), await enter(screen(), other)]).toEqual(['refused', 'let in'])
    const { qemu_pid: pid } = JSON.parse((await run('inspect', 'web', '--json')).stdout)
    const words = readFileSync(`/proc/${pid}/cmdline`, 'latin1')
    expect(words).toContain('run/display0-backend.sock')
    expect(words).not.toContain(other)
  })

  it.each([
    ['vnc', enterVnc],
    ['spice', enterSpice],
  ] as const)('by %s lets nobody in after the end of its password', async (type, enter) => {
    await setSecret(value)
    expect((await ensure(`type: ${type}, passwordValidTo: 1970-01-01T00:00:01`)).stdout).toBe('web: paused\n')
    expect(await enter(screen(), value)).toBe('refused')
  })

  it("is a socket that other users do not reach, and outlives its daemon and its secret's end", async () => {
    await setSecret(value)
    await ensure('type: vnc')
    expect(attemptAs(65_534, [['connect', screen()]]).done).toEqual([])
    expect(attemptAs(0, [['connect', screen()]]).done).toHaveLength(1)
    expect(await run('secret', 'rm', UUID)).toMatchObject({ status: 0 })
    daemon.kill('SIGKILL')
    await endChild(daemon)
    await start()
    const { state: found, reason } = JSON.parse((await run('inspect', 'web', '--json')).stdout)
    expect([found, reason]).toEqual(['PAUSED', ''])
    expect(await enterVnc(screen(), value)).toBe('let in')
    await run('kill', 'web')
    expect((await run('start', 'web')).stderr).toContain(`${FIELD}: secret ${UUID}: not found`)
  })

  it('lets nobody in when its daemon dies before, and has its password by the next one', async () => {
    await setSecret(value)
    await endChild(daemon)
    const preload = join(import.meta.dirname, '../../../support/wing/deaths/die-at-call.ts')
    await start({ NODE_OPTIONS: `--import=${preload}`, DIE_AT_COMMAND: 'set_password' })
    const dies = once(daemon, 'exit')
    const asked = ensure('type: vnc')
    await dies
    expect(await enterVnc(screen(), value)).toBe('refused')
    await start()
    expect((await asked).stdout).toBe('web: paused\n')
    expect(await enterVnc(screen(), value)).toBe('let in')
  })

  it('has its password in no log, answer, file or command line', async () => {
    await setSecret(value)
    await ensure('type: spice')
    for (const command of [
      'inspect web --json',
      'inspect web --current',
      'ps --json',
      'calls --json',
      'metrics',
    ])
      await run(...command.split(' '))
    const told = [log, ...answers, ...commandLines(folder)].join('\n')
    expect(told).toContain(UUID)
    for (const each of [value, other]) expect(told).not.toContain(each)
    expect(filesWith(state, value)).toEqual([join(state, 'secrets/admin', UUID)])
    expect(filesWith(state, other)).toEqual([])
  })
})
