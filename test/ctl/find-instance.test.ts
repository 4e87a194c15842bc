import { join } from 'node:path'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { registerMachine } from '../../src/client/machines/register.ts'
import { findMachine } from '../../src/ctl/find-machine.ts'
import { ChangeStateRequest_Change as Change } from '../../src/gen/microvm/instance/v1/instance.ts'
import { ctl } from '../support/ctl/run-ctl.ts'
import { type RunningDaemon, runMockDaemon } from '../support/host-wing/running-daemon.ts'
import { temporaryFolder } from '../support/temporary-folder.ts'
import { ensureRequest } from '../support/wing/requests.ts'

describe('agent-ctl with a daemon', () => {
  let daemon: RunningDaemon
  let env: Readonly<Record<string, string>>
  beforeEach(async () => {
    daemon = await runMockDaemon()
    env = { MICROVM_SOCKET: daemon.daemon.socket, MICROVM_REGISTRY: join(temporaryFolder(), 'machines') }
  })
  afterEach(() => daemon.close())

  async function make(key: string, change: Change = Change.RUN): Promise<void> {
    const { instances } = daemon.client()
    await instances.ensureInstance(ensureRequest(key))
    await instances.changeState({ key, change })
  }

  const find = (name: string | undefined) =>
    findMachine({ name, env, waitMs: 0, signal: AbortSignal.timeout(10_000) })

  const instance = (key: string) => ({ kind: 'instance', socket: daemon.daemon.socket, key })

  it('finds an instance by its name, or by any notation of its UUID', async () => {
    await make('web')
    const uuid = '0f8e2a52-7a4d-4a3e-9d3e-3f1a2b4c5d6e'
    await make(uuid)
    expect(await find('web')).toEqual(instance('web'))
    expect(await find(uuid.toUpperCase())).toEqual(instance(uuid.toUpperCase()))
  })

  it('takes the only one that runs', async () => {
    await make('web')
    await make('db', Change.PAUSE)
    expect(await find(undefined)).toEqual(instance('web'))
  })

  it('counts the machines of this user and those of the daemon', async () => {
    await make('web')
    const registration = registerMachine(env.MICROVM_REGISTRY ?? '', 'ant')
    registration.publish({ kind: 'unix', path: '/nowhere/ant.sock' })
    await expect(find(undefined)).rejects.toThrow('several machines run: ant, web; want -a microvm://NAME')
    await expect(find('db')).rejects.toThrow('machine "db": not running, want one of ant, web')
    expect(await find('ant')).toEqual({ kind: 'unix', path: '/nowhere/ant.sock' })
  })

  it('says how to start an instance that does not run', async () => {
    await make('web', Change.STOP)
    await expect(find('web')).rejects.toThrow('machine "web": not running; start it with ./microvm start web')
  })

  it('completes the names of the daemon', async () => {
    await make('web')
    await make('two words')
    expect((await ctl(['completion', 'machines'], { env })).stdout).toBe('microvm://web\n')
  })

  it('talks to the instance by the daemon, whose mock only echoes', async () => {
    await make('web')
    const { status, stderr } = await ctl(['-a', 'microvm://web', 'ps'], { env })
    expect([status, stderr]).toEqual([
      125,
      expect.stringMatching(/^agent-ctl: microvm:\/\/web: .*not the agent/),
    ])
  })

  it('reaches no other port of the guest', async () => {
    await make('web')
    const { status, stderr } = await ctl(['-a', 'microvm://web', 'console'], { env })
    expect([status, stderr]).toEqual([2, expect.stringContaining('microvm://web: has no ports')])
  })
})
