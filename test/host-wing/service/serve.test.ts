import { beforeEach, describe, expect, it } from 'vitest'
import { neverAborted } from '../../../src/base/abort.ts'
import { silentLogger } from '../../../src/base/log.ts'
import {
  ChangeStateRequest_Change as Change,
  ChangeStateRequest,
  type Instance,
  InstanceServiceDefinition,
  ListCallsResponse,
  RemoveRequest,
} from '../../../src/gen/microvm/instance/v1/instance.ts'
import { CallRecord } from '../../../src/gen/microvm/instance/v1/records.ts'
import type { Caller } from '../../../src/host/instance/instances.ts'
import { memoryRegistry } from '../../../src/host/instance/registry/memory-registry.ts'
import type { Registry } from '../../../src/host/instance/registry/registry.ts'
import { CallJournal } from '../../../src/host/service/call-journal.ts'
import { HostCalls } from '../../../src/host/service/host-calls.ts'
import { instanceMethods } from '../../../src/host/service/instance-methods.ts'
import { MockInstances } from '../../../src/host/service/mock-instances.ts'
import { methodsOf } from '../../../src/host/service/rpc.ts'
import { servedTables } from '../../../src/host/service/serve.ts'
import { Totals } from '../../../src/rpc/limits.ts'
import type { IncomingCall, Outcome } from '../../../src/rpc/method.ts'
import { turns } from '../../support/rpc/fake-methods.ts'

/** Instances that change when the test lets them. */
class HeldInstances extends MockInstances {
  readonly held = Promise.withResolvers<Instance>()
  caller: Caller | undefined

  override changeState(_request: ChangeStateRequest, caller: Caller): Promise<Instance> {
    this.caller = caller
    caller.inStep('waiting for QEMU')
    return this.held.promise
  }
}

describe('a call that changes something', () => {
  let registry: Registry
  let instances: HeldInstances
  let nowMs: number
  let call: Awaited<ReturnType<typeof serve>>

  beforeEach(async () => {
    registry = memoryRegistry()
    instances = new HeldInstances()
    nowMs = 0
    call = await serve()
  })

  /** The unary calls of a daemon with the registry. */
  async function serve() {
    const log = silentLogger()
    const calls = new HostCalls(() => nowMs)
    const journal = await CallJournal.open({ registry, nowMs: () => 0, log })
    const declared = methodsOf(InstanceServiceDefinition, instanceMethods({ instances, calls, tenants: [] }))
    const parts = { calls, journal, totals: new Totals(), log, nowMs: () => nowMs, stopping: neverAborted }
    const { methods } = servedTables(declared, parts, {})
    return async (
      method: string,
      payload: Uint8Array,
      more: Partial<IncomingCall> = {},
    ): Promise<Outcome> => {
      const served = methods.get(`${InstanceServiceDefinition.fullName}/${method}`)
      if (served === undefined) throw new Error(`${method}: not served`)
      return served.serve(payload, {
        ...{ timeoutMs: undefined, hangup: neverAborted, peer: 'admin', framing: 'grpc' },
        ...{ number: undefined, ageMs: 0, ...more },
      })
    }
  }

  const stop = ChangeStateRequest.encode({ key: 'a', change: Change.STOP, graceMs: 0 }).finish()
  const list = async () => {
    const outcome = await call('ListCalls', new Uint8Array(0))
    const { calls } = ListCallsResponse.decode(outcome.ok ? outcome.payload : new Uint8Array(0))
    return calls.filter(({ method }) => !method.endsWith('ListCalls'))
  }

  it('is listed with its step, and goes on after its deadline', async () => {
    const outcome = call('ChangeState', stop, { timeoutMs: 20 })
    nowMs = 7
    expect(await list()).toEqual([
      {
        ...{ id: 1n, method: 'microvm.instance.v1.InstanceService/ChangeState', key: 'a', tenant: '' },
        ...{ step: 'waiting for QEMU', ageMs: 7n },
      },
    ])
    expect(await outcome).toMatchObject({ ok: false, code: 'DEADLINE_EXCEEDED' })
    expect(await list()).toHaveLength(1)
    instances.held.reject(new Error('late'))
    await turns()
    expect(await list()).toEqual([])
  })

  it('does not hear of a hang-up when others may wait for it, too', async () => {
    const hangup = new AbortController()
    const metadata = (name: string) => (name === 'idempotency-key' ? 'k' : undefined)
    const first = call('ChangeState', stop, { hangup: hangup.signal, metadata })
    const second = call('ChangeState', stop, { metadata })
    await turns()
    hangup.abort()
    expect(await first).toMatchObject({ ok: false, code: 'CANCELLED' })
    expect(instances.caller?.signal.aborted).toBe(false)
    instances.held.reject(new Error('QEMU: gone'))
    expect(await second).toMatchObject({ ok: false, code: 'INTERNAL', message: 'QEMU: gone' })
  })

  it('has succeeded when an earlier daemon has removed the instance, and died before it said so', async () => {
    const payload = RemoveRequest.encode({ key: 'gone' }).finish()
    const metadata = (name: string) => (name === 'idempotency-key' ? 'remove' : undefined)
    expect(await call('Remove', payload, { metadata })).toMatchObject({ ok: false, code: 'NOT_FOUND' })
    const key = '/remove'
    const record = CallRecord.decode((await registry.load('calls')).get(key) ?? new Uint8Array(0))
    const begun = CallRecord.encode({ ...record, ended: false, code: '', message: '' }).finish()
    await registry.commit([{ table: 'calls', key, payload: begun }])
    const next = await serve()
    const outcome = await next('Remove', payload, { metadata })
    expect(outcome).toMatchObject({ ok: true })
  })
})
