import { describe, expect, it } from 'vitest'
import { killUntracked } from '../../../src/handlers/process/untracked-processes.ts'
import { FakeOs } from '../../support/fakes/fake-os.ts'

describe('killUntracked', () => {
  it('kills the children of vminit that are not tracked, and waits until they are reaped', async () => {
    const os = new FakeOs()
    const parents = { self: 1, 10: 1, 11: 1, 12: 11 }
    for (const [pid, parent] of Object.entries(parents)) {
      await os.files.put(`/proc/${pid}/stat`, `${pid} (a) b) S ${parent} 0 0\n`)
      os.system.processes.add(Number(pid))
    }
    let isOver = false
    // 13 has ended.
    const ended = killUntracked(os, [10, 11, 12, 13], new Set([10])).then(() => {
      isOver = true
    })
    await new Promise(setImmediate)
    expect(os.system.signals).toEqual([{ pid: 11, signal: 9 }])
    expect(isOver).toBe(false)
    os.exits.exit(11, { signal: 9 })
    await ended
    expect(os.exits.openWatches).toBe(0)
  })
})
