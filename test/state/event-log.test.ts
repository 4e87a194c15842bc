import { describe, expect, it } from 'vitest'
import type { Exit } from '../../src/gen/microvm/agent/v1/introspection.ts'
import { EventLog } from '../../src/state/event-log.ts'
import { StateStore } from '../../src/state/state-store.ts'
import { MemoryStateFiles } from '../support/fakes/files/memory-state-files.ts'

const BOUNDS = { events: 3, exits: 2, exitAgeMs: 1000 }

describe('EventLog', () => {
  it('numbers events from 1, with the time of day', () => {
    const { log } = made()
    log.add({ agentStarted: { restarts: 0 } })
    log.add({ outOfMemory: { containerId: 'c1' } })
    expect(log.after(0n, 10).events).toMatchObject([
      { sequence: 1n, atMs: 5000n, agentStarted: { restarts: 0 }, outOfMemory: undefined },
      { sequence: 2n, outOfMemory: { containerId: 'c1' } },
    ])
    expect(log.after(1n, 10).events.map(({ sequence }) => sequence)).toEqual([2n])
    expect(log.after(2n, 10)).toEqual({ events: [], gap: undefined })
  })

  it('holds the last events, and tells which numbers before them are gone', () => {
    const { log } = made()
    for (let n = 0; n < 10; n++) log.add({ clockSet: { stepMs: BigInt(n) } })
    const { events, gap } = log.after(2n, 10)
    expect(events.map(({ sequence }) => sequence)).toEqual([8n, 9n, 10n])
    expect(gap).toEqual({ firstSequence: 3n, lastSequence: 7n })
    expect(log.after(7n, 10).gap).toBeUndefined()
    expect(log.after(7n, 1).events.map(({ sequence }) => sequence)).toEqual([8n])
  })

  it('goes on with higher numbers in the next agent, with a gap', () => {
    const files = new MemoryStateFiles()
    const before = made(files).log
    before.add({ agentStarted: { restarts: 0 } })
    const { log } = made(files)
    log.add({ agentStarted: { restarts: 1 } })
    const { events, gap } = log.after(before.last, 10)
    expect(events).toMatchObject([{ sequence: 4097n, agentStarted: { restarts: 1 } }])
    expect(gap).toEqual({ firstSequence: 2n, lastSequence: 4096n })
  })

  it('begins again where the saved number cannot be read, and goes on where it cannot be written', () => {
    const files = new MemoryStateFiles()
    files.write('events', new Uint8Array([1]))
    files.beforeChange = () => {
      throw new Error('ENOSPC')
    }
    const { log } = made(files)
    log.add({ agentStarted: { restarts: 1 } })
    expect(log.last).toBe(1n)
  })

  it('holds exits until they are acknowledged, are too old, or are too many', () => {
    const { log, clock } = made()
    for (const containerId of ['a1', 'b1', 'c1']) log.addExit(exit(containerId))
    expect(log.exits()).toMatchObject([
      { sequence: 2n, containerId: 'b1' },
      { sequence: 3n, containerId: 'c1' },
    ])
    expect(log.droppedExits).toBe(1n)
    expect(log.acknowledge(2n)).toBe(1)
    expect(log.exits()).toMatchObject([{ containerId: 'c1' }])
    // The guest was restored a day later, and its clock set.
    clock.ms += 24 * 3600 * 1000
    expect(log.exits()).toMatchObject([{ containerId: 'c1' }])
    clock.bootMs += 1001
    expect(log.exits()).toEqual([])
    expect(log.after(2n, 10).events).toMatchObject([{ sequence: 3n, processExited: { sequence: 3n } }])
  })

  it('tells the time of day of a moment since the boot', () => {
    expect(made().log.unixMsOf(2_000_000_000n)).toBe(4000n)
  })

  function exit(containerId: string): Omit<Exit, 'sequence'> {
    return {
      ...{ containerId, execId: '', pid: 7, status: 0, signal: 0, oomKilled: false },
      ...{ startedAtMs: 0n, endedAtMs: 5000n, resources: undefined },
    }
  }

  function made(files = new MemoryStateFiles()) {
    const clock = { ms: 5000, bootMs: 3000 }
    const clocks = { unixMs: () => clock.ms, boottimeNs: () => BigInt(clock.bootMs) * 1_000_000n }
    return { clock, log: new EventLog(new StateStore(files), clocks, BOUNDS) }
  }
})
