import { readdirSync, readFileSync } from 'node:fs'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { MOVE_SETTINGS } from '../../../../src/host/migration/move/move-host.ts'
import type { FaultKind } from '../../../support/wing/moves/faults/move-faults.ts'
import { MovingMachine } from '../../../support/wing/moves/faults/random-moves.ts'
import { Fleet } from '../../../support/wing/moves/fleet.ts'

const TIMEOUT_MS = 180_000
/** A busy machine renews a lease in time. */
const TTL_MS = 10_000
const AT_ONCE = { delayMs: 0, lastMs: 0 } as const
/** Before a target takes its lease, and what only the one that has it may have. `npm run moves -- --steps 500 --lease 10000` has the others. */
const FAULTS_OF_LEASE: readonly FaultKind[] = [
  { kind: 'kill', who: 'target' },
  { kind: 'kill', who: 'target holder' },
  { kind: 'stop', who: 'quorum' },
  { kind: 'drop', wire: 'target-controllers' },
]

/** Journal, console and chain of a machine are looked at after each move: one writer after the other, and nothing is lost. */
describe('a machine with LM_FULL_LEASES', { timeout: TIMEOUT_MS }, () => {
  let fleet: Fleet
  let machine: MovingMachine

  beforeAll(async () => {
    fleet = await Fleet.start({ leaseTtlMs: TTL_MS })
    machine = new MovingMachine(fleet)
    await machine.boot()
  }, TIMEOUT_MS)
  afterAll(async () => {
    expect(await fleet.end()).toEqual([])
  }, TIMEOUT_MS)

  /** The processes that have the disk open to write, by what they are called and export. */
  const servers = () =>
    readdirSync('/proc').flatMap((pid) => {
      const words = /^\d+$/.test(pid) ? wordsOf(pid) : []
      if (!words.some((word) => word.includes(`"filename":"${fleet.journal}"`))) return []
      const [, name = ''] = /name=([^,]*),writable=on/.exec(words.join(' ')) ?? []
      return [{ pid, name }]
    })
  const generation = () => fleet.chain().at(-1)?.generation ?? 0

  it('moves there and back, and each host writes by a server of its own', async () => {
    const made = generation()
    const [first] = servers()
    expect(servers()).toEqual([{ pid: first?.pid, name: 'disk' }])
    await machine.move({ kind: 'none', step: 'end', ...AT_ONCE })
    expect(generation()).toBe(made + 1)
    const [second] = servers()
    expect(servers()).toEqual([{ pid: second?.pid, name: `epoch-${made + 1}` }])
    expect(second?.pid).not.toBe(first?.pid)
    await machine.move({ kind: 'none', step: 'end', ...AT_ONCE })
    expect(generation()).toBe(made + 2)
    const [third] = servers()
    expect(servers()).toEqual([{ pid: third?.pid, name: 'disk' }])
    expect(third?.pid).not.toBe(second?.pid)
  })

  it('runs on one host when a party is lost before the target takes its lease', async () => {
    for (const fault of FAULTS_OF_LEASE) {
      await machine.move({ ...fault, before: 'arrival lease', lastMs: 500 })
      expect(servers()).toHaveLength(1)
    }
  })

  it('goes on with its lease and its server when its target dies before the switchover', async () => {
    const before = { generation: generation(), servers: servers() }
    await machine.move({ kind: 'kill', who: 'target', step: 'handover', ...AT_ONCE })
    expect({ generation: generation(), servers: servers() }).toEqual(before)
  })

  it('runs on one host when its source dies after the handover', async () => {
    await machine.move({ kind: 'kill', who: 'source', step: 'switchover', ...AT_ONCE })
    expect(servers()).toHaveLength(1)
  })

  it('is taken back by its source, as another run with its lease, when its target says nothing', async () => {
    const before = fleet.chain().at(-1)
    const figures = await machine.move({
      ...{ kind: 'stop', who: 'target', step: 'state', delayMs: 0 },
      lastMs: MOVE_SETTINGS.runsMs * 1.2,
    })
    expect(figures).toMatchObject({ moved: 0, ended: 0 })
    const after = fleet.chain().at(-1)
    expect(after).toMatchObject({ pod: before?.pod, generation: (before?.generation ?? 0) + 1 })
    expect(after?.run).not.toBe(before?.run)
    expect(servers()).toHaveLength(1)
  })

  it('is ended on a source that is cut off for longer than its lease', async () => {
    const figures = await machine.move({
      kind: 'drop',
      wire: 'source',
      step: 'handover',
      delayMs: 0,
      lastMs: TTL_MS * 1.1,
    })
    expect(figures).toMatchObject({ moved: 0, ended: 1 })
    expect(servers()).toHaveLength(1)
  })
})

function wordsOf(pid: string): readonly string[] {
  try {
    return readFileSync(`/proc/${pid}/cmdline`, 'utf8').split('\0')
  } catch {
    // The process has ended meanwhile.
    return []
  }
}
