import { type ChildProcess, spawn, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { Readable } from 'node:stream'
import { text } from 'node:stream/consumers'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { writeMicrovm } from '../../../../src/build/microvm.ts'
import { projectRoot } from '../../../../src/build/project.ts'
import { Instance } from '../../../../src/gen/microvm/instance/v1/instance.ts'
import { instanceJson } from '../../../../src/microvm/machines/command.ts'
import { microvm } from '../../../support/microvm/run-microvm.ts'
import { endChild, processState } from '../../../support/processes.ts'
import { temporaryFolder } from '../../../support/temporary-folder.ts'
import { lifePlan } from '../../../support/wing/real-wing.ts'

describe('the commands on a daemon of real machines', () => {
  let folder: string
  let state: string
  let daemon: ChildProcess | undefined

  beforeEach(() => {
    folder = temporaryFolder()
    state = join(folder, 'state')
    daemon = undefined
  })

  afterEach(async () => {
    if (daemon === undefined) return
    await run('rm', 'web')
    await endChild(daemon)
  })

  const run = (...words: readonly string[]) => microvm([...words, '--socket', join(state, 'admin.sock')])

  const SOURCES = [process.execPath, join(projectRoot, 'src/microvm/main.ts')]

  function spawnDaemon(
    words: readonly string[] = [],
    [program = '', ...args]: readonly string[] = SOURCES,
  ): ChildProcess {
    const env = { ...process.env, MICROVM_ACCEL: 'tcg' }
    const argv = [...args, 'daemon', '--state', state, ...words]
    return spawn(program, argv, { env, stdio: ['ignore', 'ignore', 'pipe'] })
  }

  async function start(...how: Parameters<typeof spawnDaemon>): Promise<void> {
    daemon = spawnDaemon(...how)
    let log = ''
    for await (const chunk of daemon.stderr?.iterator({ destroyOnReturn: false }) ?? []) {
      log += chunk
      if (log.includes('"msg":"serving"')) break
    }
    daemon.stderr?.resume()
    expect(log).toContain('serving')
  }

  it('keep a machine over the loss of the daemon and of its registry', async () => {
    await start()
    const { properties, specification } = lifePlan(join(folder, 'disks')).request
    const file = join(folder, 'web.json')
    writeFileSync(file, JSON.stringify(instanceJson(Instance.fromPartial({ properties, specification }))))
    expect(await run('ensure', file)).toMatchObject({ status: 0, stdout: 'web: paused\n' })
    expect((await run('start', 'web')).stdout).toBe('web: running\n')
    const { qemu_pid: pid } = JSON.parse((await run('inspect', '--json', 'web')).stdout)
    const ended = once(daemon as ChildProcess, 'exit')
    daemon?.kill('SIGKILL')
    await ended
    writeFileSync(join(state, 'registry.sqlite'), 'of another program')

    const refused = spawnDaemon()
    const [status, line] = await Promise.all([
      once(refused, 'close'),
      text(refused.stderr ?? Readable.from([])),
    ])
    expect([status, line.split('\n')]).toEqual([
      [125, null],
      [
        expect.stringMatching(
          /^microvm: .*registry\.sqlite: damaged .*, want the daemon started with --rebuild$/,
        ),
        '',
      ],
    ])

    await start(['--rebuild'])
    const found = JSON.parse((await run('inspect', '--json', 'web')).stdout)
    expect(found).toMatchObject({ state: 'RUNNING', qemu_pid: pid })
    expect((await run('kill', 'web')).stdout).toBe('web: stopped\n')
    expect(processState(pid)).toBeUndefined()
  })

  it('tell the error of a daemon that answers apart from a daemon that does not', async () => {
    await start()
    const { properties, specification } = lifePlan(join(folder, 'disks')).request
    const file = join(folder, 'web.json')
    const json = JSON.stringify(instanceJson(Instance.fromPartial({ properties, specification })))
    writeFileSync(file, json.replace(/"kernel":"[^"]*"/, '"kernel":"/nowhere"'))
    const failed = await run('ensure', file)
    expect(failed.stderr).toMatch(/^microvm: ensure: FAILED_PRECONDITION: qemu: \/nowhere: ENOENT$/m)
    expect(failed.status).toBe(1)
  })

  it('say that a device stays until the guest lets it go', async () => {
    await start()
    const plan = lifePlan(join(folder, 'disks'))
    const { properties, specification } = plan.request
    const [web, data] = [join(folder, 'web.json'), join(folder, 'data.json')]
    writeFileSync(web, JSON.stringify(instanceJson(Instance.fromPartial({ properties, specification }))))
    const device = { backend: 'data-file', port: 'port', disk: { serial: 'data' } }
    const backend = { file: { path: plan.data, access: 'READ_WRITE' } }
    writeFileSync(data, JSON.stringify({ device, backend }))
    await run('ensure', web)
    expect((await run('plug', 'web', 'data', data)).stdout).toBe('web: paused\n')
    const unplugged = await run('unplug', '--grace', '1', 'web', 'data')
    expect([unplugged.status, unplugged.stdout]).toEqual([0, 'web: paused\n'])
    expect(unplugged.stderr).toContain(
      'device data: leaving; it goes when the guest lets it go, or with the machine',
    )
  })

  it('are those of the program that npm run dist writes, too', async () => {
    const program = await writeMicrovm(join(folder, 'dist'))
    await start([], [program])
    const { properties, specification } = lifePlan(join(folder, 'disks')).request
    const file = join(folder, 'web.json')
    writeFileSync(file, JSON.stringify(instanceJson(Instance.fromPartial({ properties, specification }))))
    const shipped = (...words: readonly string[]) => {
      const argv = [...words, '--socket', join(state, 'admin.sock')]
      const { stdout, stderr } = spawnSync(program, argv, { encoding: 'utf8' })
      return stdout + stderr
    }
    expect(shipped('ensure', file)).toBe('web: paused\n')
    expect(shipped('start', 'web')).toBe('web: running\n')
    expect(shipped('snapshot', 'web', 'monday')).toContain('web: monday: ')
    expect(shipped('kill', 'web')).toBe('web: stopped\n')
  })
})
