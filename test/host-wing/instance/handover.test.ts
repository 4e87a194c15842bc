import { describe, expect, it, vi } from 'vitest'
import { neverAborted } from '../../../src/base/abort.ts'
import type { MachineInstance } from '../../../src/host/instance/instance.ts'
import type { Moves } from '../../../src/host/instance/moves.ts'
import { moveCalls } from '../../../src/host/instance/moving/move-calls.ts'

describe('a handover', () => {
  it.each([
    ['no instance awaits any more', new Map()],
    ['another change keeps from it', new Map([['web', { change: () => Promise.reject(new Error('left')) }]])],
  ])('gives its port back when %s', async (_, instances: ReadonlyMap<string, object>) => {
    const close = vi.fn()
    const arrival = { key: 'web', take: () => Promise.reject(new Error('taken')), close }
    const calls = moveCalls({
      moves: { hosts: { begin: async () => arrival } } as unknown as Moves,
      volumes: undefined,
      instances: instances as ReadonlyMap<string, MachineInstance>,
      takenIn: () => Promise.reject(new Error('not asked for')),
      add: () => {
        throw new Error('not asked for')
      },
    })
    const how = { signal: neverAborted, checkOwner: async () => {} }
    const requests = (async function* () {})()
    const answers = calls.handover(requests, { id: 'a', address: '' }, how)
    const read = async () => {
      for await (const _ of answers);
    }
    await expect(read()).rejects.toThrow(/instance web: not found|left/)
    expect(close).toHaveBeenCalledOnce()
  })
})
