import { describe, expect, it } from 'vitest'
import { neverAborted } from '../../../src/base/abort.ts'
import { AgentError } from '../../../src/base/errors.ts'
import {
  Compaction,
  type CompactionFigures,
  decideCompaction,
  fragmentPages,
} from '../../../src/handlers/guest/mem-agent/compaction.ts'
import type { CompactSettings } from '../../../src/handlers/guest/mem-agent/settings.ts'
import { recordingLog } from '../../support/fakes/recording-log.ts'
import {
  BUDDYINFO,
  MEM_AGENT_DEFAULTS,
  type MemoryGuest,
  memoryGuest,
} from '../../support/handlers/guest/mem-agent.ts'

const DEFAULTS = MEM_AGENT_DEFAULTS.compact
const VMINIT = '/usr/lib/microvm-agent/vminit'

describe('fragmentPages', () => {
  it.each([
    { order: 0, pages: 0 },
    { order: 1, pages: 45 },
    { order: 9, pages: 1495 },
    { order: 10, pages: 1495 + 2 * 512 },
  ])('counts $pages free pages in blocks below order $order', ({ order, pages }) => {
    expect(fragmentPages(BUDDYINFO, order)).toBe(pages)
  })
})

describe('decideCompaction', () => {
  const FIGURES: CompactionFigures = {
    pressurePercent: 0,
    fragmentPages: 1495,
    fragmentPagesBefore: 0,
    periodsWithout: 0,
  }
  const decide = (figures: Partial<CompactionFigures>, settings: Partial<CompactSettings> = {}) =>
    decideCompaction({ ...DEFAULTS, ...settings }, { ...FIGURES, ...figures })

  it.each([
    { when: 'when fragments have grown', figures: {} },
    { when: 'when they have grown by the threshold', figures: { fragmentPagesBefore: 471 } },
    {
      ...{ when: 'after so many periods without', figures: { fragmentPages: 0, periodsWithout: 3 } },
      settings: { forceTimes: 3 },
    },
    { when: 'in each period', figures: { fragmentPages: 0 }, settings: { forceTimes: 0 } },
  ])('compacts $when', ({ figures, settings }) => {
    expect(decide(figures, settings)).toEqual({ kind: 'compact' })
  })

  it.each([
    {
      because: 'pressure',
      figures: { pressurePercent: 1.1, periodsWithout: 9 },
      settings: { forceTimes: 0 },
    },
    { because: 'too few fragments', figures: { fragmentPagesBefore: 472 } },
    {
      because: 'too few fragments',
      figures: { fragmentPages: 0, periodsWithout: 2 },
      settings: { forceTimes: 3 },
    },
  ])('does not compact because of $because with %o', ({ because, figures, settings }) => {
    expect(decide(figures, settings)).toEqual({ kind: 'skip', because })
  })
})

describe('Compaction', () => {
  const { lines, log } = recordingLog()

  function compactionOf({ os }: MemoryGuest) {
    lines.length = 0
    return new Compaction({ os, log, vminit: VMINIT })
  }

  async function period(
    guest: MemoryGuest,
    compaction: Compaction,
    settings = DEFAULTS,
    signal = neverAborted,
  ) {
    await compaction.begin()
    guest.os.clock.advance(settings.periodSecs * 1000)
    await compaction.end(settings, signal)
  }

  it('has a process write, and logs what it changed', async () => {
    const guest = await memoryGuest()
    guest.os.tools.script(() =>
      guest.os.files.put('/proc/buddyinfo', 'Node 0, zone DMA32 45 0 0 0 0 0 0 0 0 0 90\n').then(() => ({})),
    )
    await period(guest, compactionOf(guest))
    const [call] = guest.os.tools.calls
    expect(call?.argv).toEqual([VMINIT, '--compact-memory'])
    expect(call?.options.timeoutMs).toBe(300_000)
    expect(guest.os.clock.sleeping).toBe(0)
    const fields = { ms: 0, fragmentsBefore: 1495, fragments: 45, stopped: undefined }
    expect(lines).toEqual([{ level: 'info', message: 'memory compacted', fields }])
  })

  it('begins again only when fragments have grown since, or when it is forced', async () => {
    const guest = await memoryGuest()
    guest.os.tools.script(() => ({}))
    const compaction = compactionOf(guest)
    const settings = { ...DEFAULTS, forceTimes: 2 }
    for (const runs of [1, 1, 1, 2]) {
      await period(guest, compaction, settings)
      expect(guest.os.tools.calls).toHaveLength(runs)
    }
  })

  it('does nothing after a period with pressure', async () => {
    const guest = await memoryGuest()
    const compaction = compactionOf(guest)
    await compaction.begin()
    await guest.stall('', 'io', 7_000_000)
    guest.os.clock.advance(600_000)
    await compaction.end(DEFAULTS, neverAborted)
    expect(guest.os.tools.calls).toEqual([])
  })

  it('is ended by pressure', async () => {
    const guest = await memoryGuest()
    const started = Promise.withResolvers<void>()
    guest.os.tools.script((_argv, { signal }) => {
      started.resolve()
      return untilAborted(signal)
    })
    const ending = period(guest, compactionOf(guest))
    await started.promise
    await expect.poll(() => guest.os.clock.sleeping).toBe(1)
    guest.os.clock.advance(1000)
    await expect.poll(() => guest.os.clock.sleeping).toBe(1)
    await guest.stall('', 'memory', 110_000)
    guest.os.clock.advance(1000)
    await ending
    expect(lines).toMatchObject([{ message: 'memory compacted', fields: { stopped: 'pressure', ms: 2000 } }])
  })

  it.each([
    ['by its longest time', 'time', new AgentError('INTERNAL', 'not finished', { errno: 'ETIMEDOUT' })],
    ['with the agent', 'stopped', undefined],
  ])('is ended %s', async (_what, stopped, error) => {
    const guest = await memoryGuest()
    const stop = new AbortController()
    guest.os.tools.script((_argv, { signal }) => {
      if (error !== undefined) return Promise.reject(error)
      queueMicrotask(() => stop.abort())
      return untilAborted(signal)
    })
    await period(guest, compactionOf(guest), DEFAULTS, stop.signal)
    expect(lines).toMatchObject([{ fields: { stopped } }])
    expect(guest.os.clock.sleeping).toBe(0)
  })

  it('fails with the error of the process', async () => {
    const missing = '/proc/sys/vm/compact_memory: No such file or directory'
    const guest = await memoryGuest()
    guest.os.tools.script(() => ({ exitCode: 1, stderr: `${missing}\n` }))
    await expect(period(guest, compactionOf(guest))).rejects.toMatchObject({
      message: missing,
    })
  })

  async function untilAborted(signal: AbortSignal | undefined): Promise<never> {
    const killed = Promise.withResolvers<never>()
    signal?.addEventListener('abort', () => killed.reject(signal.reason))
    return killed.promise
  }
})
