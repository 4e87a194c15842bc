import { once } from 'node:events'
import { describe, expect, it } from 'vitest'
import { neverAborted } from '../../../src/base/abort.ts'
import { AgentError } from '../../../src/base/errors.ts'
import { silentLogger } from '../../../src/base/log.ts'
import {
  ChangeStateRequest_Change as Change,
  type ChangeStateRequest,
  EnsureInstanceRequest,
  Instance,
} from '../../../src/gen/microvm/instance/v1/instance.ts'
import { awaitMachine, endAtSignals } from '../../../src/host/service/hypervisor/machine-end.ts'
import { ofOnly } from '../../../src/host/service/hypervisor/only-machine.ts'
import { MockInstances } from '../../../src/host/service/mock-instances.ts'

describe('a hypervisor that awaits its machine', () => {
  const only = { name: 'web', namespace: 'prod', listen: undefined, prepare: async () => {} }
  const made = EnsureInstanceRequest.fromPartial({ properties: { key: 'web' }, specification: {} })

  it('lets nobody make another one in its place', () => {
    const awaited = { backends: {}, lease: undefined }
    expect(() => ofOnly({ ...only, awaited }, made)).toThrow(
      'migration_target: missing, want it, because this hypervisor awaits its machine',
    )
    expect(ofOnly(only, made)).toBe(made)
  })

  it('does not wait for a machine that has begun to come when its process is killed', async () => {
    const instances = new MockInstances()
    instances.move.giveUpTarget = async () => {
      throw new AgentError('PERMISSION_DENIED', 'instance web: awaits no machine')
    }
    const [stop, kill] = [AbortSignal.abort(), new AbortController()]
    const come = awaitMachine(instances, 'web', { after: 0n, waitMs: 60_000, stop, kill: kill.signal })
    kill.abort()
    expect(await come).toBeUndefined()
  })
})

describe('endAtSignals', () => {
  it('kills a machine that cannot be stopped', async () => {
    const changes: Change[] = []
    const killed = new EventTarget()
    const ended = once(killed, 'killed')
    const instances = new MockInstances()
    instances.changeState = async ({ change }: ChangeStateRequest) => {
      changes.push(change)
      if (change === Change.STOP) throw new AgentError('UNAVAILABLE', 'another host may run its machine')
      killed.dispatchEvent(new Event('killed'))
      return Instance.create()
    }
    const signals = { stop: AbortSignal.abort(), kill: neverAborted }
    endAtSignals(instances, 'web', { ...signals, graceMs: 1000, isMovable: false, log: silentLogger() })
    await ended
    expect(changes).toEqual([Change.STOP, Change.KILL])
  })
})
