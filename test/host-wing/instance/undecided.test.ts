import { describe, expect, it } from 'vitest'
import { InstanceRecord } from '../../../src/gen/microvm/instance/v1/records.ts'
import { HANDED, settleUndecided } from '../../../src/host/instance/moving/undecided.ts'
import { checkSuspend } from '../../../src/host/migration/saving/check-suspend.ts'

const step = { instance: 'web', step: 'move', words: ['', '', '', '', '', '', HANDED] }
const recorded = { steps: [step] }

describe('a machine that another host may run', () => {
  it('is not saved', async () => {
    // The refusal comes before all else that is looked at.
    const instance = { key: 'web', record: InstanceRecord.create(), recorded } as unknown as Parameters<
      typeof checkSuspend
    >[0]
    await expect(checkSuspend(instance, { wasRunning: true, hasAgent: false })).rejects.toMatchObject({
      code: 'FAILED_PRECONDITION',
      message: 'instance web: another host may run its machine, want an answer of the controller before',
    })
  })

  it('is asked for no longer than a call waits', async () => {
    const settle = (_: unknown, signal?: AbortSignal) =>
      new Promise<boolean>((_resolve, reject) => {
        signal?.addEventListener('abort', () => reject(signal.reason))
      })
    const plugParts = { moves: { savedOn: async () => undefined, settle } }
    await expect(settleUndecided({ key: 'web', recorded, plugParts }, 20)).rejects.toMatchObject({
      code: 'UNAVAILABLE',
      message: 'instance web: another host may run its machine, and no controller has answered in 20 ms',
    })
  })
})
