import { expect, it } from 'vitest'
import { neverAborted } from '../../../../src/base/abort.ts'
import { AgentError } from '../../../../src/base/errors.ts'
import { silentLogger } from '../../../../src/base/log.ts'
import { State } from '../../../../src/gen/microvm/instance/v1/instance.ts'
import { InstanceRecord, type StepRecord } from '../../../../src/gen/microvm/instance/v1/records.ts'
import { LeaseMode } from '../../../../src/gen/vm.ts'
import { isOnItsWay } from '../../../../src/host/instance/moving/undecided.ts'
import { settleArrival } from '../../../../src/host/migration/move/target.ts'

type Instance = Parameters<typeof settleArrival>[0]

/** A machine with a full lease whose memory is here, and which this host runs. Its lease is not to be had. */
function arrived() {
  const step = { step: 'incoming', words: ['', '', 'own', ''] } as unknown as StepRecord
  const record = InstanceRecord.fromPartial({
    ...{ current: State.PAUSED, awaiting: {}, target: {}, uid: 0 },
    properties: { key: 'web', lease: { mode: LeaseMode.LM_FULL_LEASES, ttlMs: 10_000 } },
  })
  const recorded = {
    ...{ record, steps: [step] as readonly StepRecord[] },
    note: async ({ add = [], drop = [], set = {} }: Parameters<Instance['recorded']['note']>[0]) => {
      const gone = [...drop, ...add].map(({ step }) => step)
      recorded.steps = [...recorded.steps.filter(({ step }) => !gone.includes(step)), ...add]
      recorded.record = { ...recorded.record, ...set }
    },
  }
  const acquire = async () => {
    throw new AgentError('UNAVAILABLE', 'lease: no grant')
  }
  const ends: string[] = []
  const instance = {
    ...{ key: 'web', recorded, record, isLetGo: false, ending: neverAborted },
    planned: async () => [{ step: 'lease', words: [''] }],
    tearDown: async (reason: string) => void ends.push(reason),
    context: {
      ...{ log: silentLogger(), holder: {}, lease: { acquire }, ending: () => neverAborted },
      machine: {
        qmp: {
          execute: async () => ({ running: false, status: 'paused' }),
          ended: new Promise(() => {}),
        },
      },
    },
  }
  const host = { closing: neverAborted, settings: { lateMs: 0, retryMs: 1 } }
  const settle = () =>
    settleArrival(
      instance as unknown as Instance,
      step,
      host as unknown as NonNullable<Parameters<typeof settleArrival>[2]>,
    )
  return { ends, instance, recorded, settle }
}

it('ends a machine of this host that cannot have its lease, which is not on its way any more', async () => {
  const { ends, recorded, settle } = arrived()
  await expect(settle()).rejects.toThrow('lease: no grant')
  expect(isOnItsWay({ recorded })).toBe(false)
  expect(recorded.record).toMatchObject({ target: undefined, reason: ends[0] })
  expect(ends).toEqual(['lease and disks: not taken within 0 ms: lease: no grant'])
})

it('leaves such a machine to the next daemon when this one stops', async () => {
  const { ends, instance, recorded, settle } = arrived()
  instance.isLetGo = true
  await expect(settle()).rejects.toThrow('lease: no grant')
  expect(isOnItsWay({ recorded })).toBe(true)
  expect(ends).toEqual([])
})
