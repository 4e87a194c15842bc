import { describe, expect, it } from 'vitest'
import {
  ChangeStateRequest_Change as Change,
  type DeepPartial,
  Specification,
  State,
} from '../../../src/gen/microvm/instance/v1/instance.ts'
import type { Instances } from '../../../src/host/instance/instances.ts'
import {
  checkQuota,
  DEFAULT_QUOTA,
  type Quota,
  type Quotas,
} from '../../../src/host/instance/record/quota.ts'
import { MockInstances } from '../../../src/host/service/mock-instances.ts'
import { ADMIN, ensureRequest, tenant } from '../../support/wing/requests.ts'
import { FakeWing } from '../../support/wing/wing.ts'

const ANNE = tenant('anne')

const KINDS: Readonly<Record<string, (quotas: Quotas) => Promise<Instances>>> = {
  machines: (quotas) => {
    const wing = new FakeWing()
    return wing.open(wing.registry, { quotas })
  },
  'a mock': async (quotas) => new MockInstances({ quotas }),
}

it('counts once what the clones of a saved machine have in common', () => {
  const use = (key: string) => ({
    properties: { key, tenant: 'anne', labels: {} },
    specification: Specification.fromPartial({ board: { memoryMib: 64n } }),
    ...{ state: State.RUNNING, privateMemory: '/keepers/one/holder.sock' },
  })
  const quotas = new Map([['anne', { ...DEFAULT_QUOTA, memoryMib: 192 }]])
  checkQuota(quotas, use('b'), [use('a')])
  expect(() => checkQuota(quotas, use('c'), [use('a'), use('b')])).toThrow(
    '256 MiB of memory in machines, want at most 192',
  )
})

describe.each(Object.keys(KINDS))('the quota of a tenant, with %s', (kind) => {
  /** Each machine has 64 MiB and one CPU, unless it says otherwise. */
  const open = async (quota: Partial<Quota>) =>
    (await KINDS[kind]?.(new Map([['anne', { ...DEFAULT_QUOTA, ...quota }]]))) as Instances

  const make = (
    instances: Instances,
    key: string,
    board: DeepPartial<Specification['board']> = {},
    caller = ANNE,
  ) => instances.ensure(ensureRequest(key, { tenant: 'anne', specification: { board } }), caller)

  const refused = (answer: Promise<unknown>, message: string) =>
    expect(answer).rejects.toMatchObject({ code: 'RESOURCE_EXHAUSTED', message: `tenant anne: ${message}` })

  const change = (instances: Instances, key: string, to: Change) =>
    instances.changeState({ key, change: to, graceMs: 0 }, ANNE)

  it('counts its instances, stopped ones too, whoever makes them', async () => {
    const instances = await open({ instances: 2 })
    await make(instances, 'a')
    await make(instances, 'b', {}, ADMIN)
    await change(instances, 'a', Change.KILL)
    for (const caller of [ANNE, ADMIN])
      await refused(make(instances, 'c', {}, caller), '3 instances, want at most 2')
    await make(instances, 'a')
    await instances.ensure(ensureRequest('others'), ADMIN)
    await instances.remove('a', ANNE)
    await make(instances, 'c')
    expect(instances.list(ANNE)).toHaveLength(2)
  })

  it('counts the memory and the CPUs of machines, with the room for more', async () => {
    const instances = await open({ memoryMib: 256, cpus: 4 })
    await make(instances, 'a')
    const room = { cpus: 2, memoryMib: 128n, memorySlots: 1 }
    await refused(
      make(instances, 'b', { room: { ...room, memoryMib: 129n } }),
      `257 ${MEMORY}, want at most 256`,
    )
    await refused(make(instances, 'b', { room: { ...room, cpus: 3 } }), '5 CPUs in machines, want at most 4')
    await make(instances, 'b', { room })
    expect(instances.list(ANNE)).toHaveLength(2)
  })

  it('counts the memory that an instance may take besides that of its guest', async () => {
    const instances = await open({ memoryMib: 256 })
    const limited = (memoryMib: bigint) =>
      ensureRequest('a', { tenant: 'anne', specification: { limits: { memoryMib } } })
    await refused(instances.ensure(limited(257n), ANNE), `257 ${MEMORY}, want at most 256`)
    await instances.ensure(limited(192n), ANNE)
    await make(instances, 'b')
    await refused(make(instances, 'c'), `320 ${MEMORY}, want at most 256`)
  })

  it('counts no memory of a stopped machine until it is started anew', async () => {
    const instances = await open({ memoryMib: 64 })
    await make(instances, 'a')
    await change(instances, 'a', Change.KILL)
    await make(instances, 'b')
    await refused(change(instances, 'a', Change.RUN), `128 ${MEMORY}, want at most 64`)
    await change(instances, 'b', Change.KILL)
    await change(instances, 'a', Change.RUN)
    await refused(change(instances, 'b', Change.RUN), `128 ${MEMORY}, want at most 64`)
    await change(instances, 'a', Change.PAUSE)
    await refused(change(instances, 'b', Change.RUN), `128 ${MEMORY}, want at most 64`)
  })

  it('lets as many of those that come at once through as there is room for', async () => {
    const instances = await open({ instances: 2, memoryMib: 64 * 2 })
    const made = await Promise.allSettled(['a', 'b', 'c', 'd'].map((key) => make(instances, key)))
    expect(made.filter(({ status }) => status === 'fulfilled')).toHaveLength(2)
  })
})

const MEMORY = 'MiB of memory in machines'
