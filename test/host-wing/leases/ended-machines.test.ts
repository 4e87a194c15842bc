import { describe, expect, it } from 'vitest'
import { abortable, neverAborted } from '../../../src/base/abort.ts'
import { AgentError } from '../../../src/base/errors.ts'
import { silentLogger } from '../../../src/base/log.ts'
import { LeaseMode } from '../../../src/gen/vm.ts'
import { takeLease } from '../../../src/host/instance/leases/take-lease.ts'
import { terminate } from '../../../src/host/instance/leases/terminate.ts'

const fail = (code: AgentError['code'], message: string) => async (): Promise<never> => {
  throw new AgentError(code, message)
}

describe('a machine that is ended at once', () => {
  it.each([
    ['is gone', fail('NOT_FOUND', 'no instance'), []],
    ['cannot be ended', fail('INTERNAL', 'stuck'), ['error: instance not ended']],
    ['is ended, and then gone', async () => fail('NOT_FOUND', 'no instance'), []],
    [
      'is ended, and no controller says who runs it',
      async () => fail('UNAVAILABLE', 'away'),
      ['warn: not learnt who runs the machine'],
    ],
  ])('%s', async (_, endAtOnce, told) => {
    const said: string[] = []
    const log = {
      warn: (text: string) => void said.push(`warn: ${text}`),
      error: (text: string) => void said.push(`error: ${text}`),
    }
    // What `endAtOnce` resolves with stands for the change that asks.
    let change = async (): Promise<void> => {}
    const instance = {
      context: { log },
      endAtOnce: async () => {
        change = await endAtOnce()
      },
      change: () => change(),
    }
    terminate(instance as unknown as Parameters<typeof terminate>[0], 'terminated by the controller')
    await new Promise(setImmediate)
    expect(said).toEqual(told)
  })
})

describe('the lease of a machine that has arrived', () => {
  it('is not taken for the reason of the last try when the machine is ended between two', async () => {
    const ending = new AbortController()
    const failed = Promise.withResolvers<void>()
    const instance = {
      ...{ key: 'web', ending: ending.signal },
      record: { properties: { lease: { mode: LeaseMode.LM_FULL_LEASES } } },
      planned: async () => [{ step: 'lease', words: [''] }],
      context: {
        ...{
          holder: {},
          lease: { acquire: fail('UNAVAILABLE', 'lease: no grant') },
          ending: () => neverAborted,
        },
        log: { ...silentLogger(), warn: () => failed.resolve() },
      },
    } as unknown as Parameters<typeof takeLease>[0]
    const settings = { lateMs: 60_000, retryMs: 60_000 }
    const taken = takeLease(instance, { closing: neverAborted, settings })
    void failed.promise.then(() => ending.abort())
    await expect(taken).rejects.toThrow('lease: no grant')
  })

  it('is not waited for once its QEMU has ended', async () => {
    const ended = Promise.withResolvers<AgentError>()
    const instance = {
      ...{ key: 'web', ending: neverAborted },
      record: { properties: { lease: { mode: LeaseMode.LM_FULL_LEASES } } },
      planned: async () => [{ step: 'lease', words: [''] }],
      context: {
        ...{ holder: {}, ending: () => neverAborted, log: silentLogger() },
        machine: { qmp: { ended: ended.promise } },
        lease: {
          acquire: async (_: unknown, signal: AbortSignal) => {
            ended.resolve(new AgentError('UNAVAILABLE', 'QMP: the connection was closed'))
            await abortable(new Promise(() => {}), signal)
          },
        },
      },
    } as unknown as Parameters<typeof takeLease>[0]
    const settings = { lateMs: 60_000, retryMs: 1 }
    await expect(takeLease(instance, { closing: neverAborted, settings })).rejects.toThrow('QMP: ')
  })

  it('is given up in time also while another host does not answer', async () => {
    const instance = {
      ...{ key: 'web', ending: neverAborted },
      record: { properties: { lease: { mode: LeaseMode.LM_FULL_LEASES } } },
      planned: async () => [{ step: 'lease', words: [''] }],
      context: {
        ...{ holder: {}, ending: () => neverAborted, log: silentLogger() },
        lease: { acquire: (_: unknown, signal: AbortSignal) => abortable(new Promise(() => {}), signal) },
      },
    } as unknown as Parameters<typeof takeLease>[0]
    const settings = { lateMs: 20, retryMs: 1 }
    await expect(takeLease(instance, { closing: neverAborted, settings })).rejects.toThrow(
      'lease and disks: not taken within 20 ms',
    )
  })
})
