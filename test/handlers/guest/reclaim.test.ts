import { describe, expect, it } from 'vitest'
import { neverAborted } from '../../../src/base/abort.ts'
import {
  ContainerReclaim,
  decideReclaim,
  type ReclaimFigures,
  type ReclaimTarget,
} from '../../../src/handlers/guest/mem-agent/reclaim.ts'
import type { ReclaimSettings } from '../../../src/handlers/guest/mem-agent/settings.ts'
import { kernelError } from '../../../src/os/errors.ts'
import { recordingLog } from '../../support/fakes/recording-log.ts'
import { MEM_AGENT_DEFAULTS, type MemoryGuest, memoryGuest } from '../../support/handlers/guest/mem-agent.ts'

const MIB = 2 ** 20
const DEFAULTS = MEM_AGENT_DEFAULTS.reclaim
const AT_ONCE = { ...DEFAULTS, evictionRunAgingCountMin: 1 }

describe('decideReclaim', () => {
  const FIGURES: ReclaimFigures = {
    pressurePercent: 0,
    quietPeriods: 3,
    inactiveFileBytes: 40 * MIB,
    inactiveAnonBytes: 20 * MIB,
    hasSwap: false,
    takesSwappiness: false,
  }
  const decide = (figures: Partial<ReclaimFigures>, settings: Partial<ReclaimSettings> = {}) =>
    decideReclaim({ ...DEFAULTS, ...settings }, { ...FIGURES, ...figures })

  const reclaimed: readonly {
    readonly when: string
    readonly figures: Partial<ReclaimFigures>
    readonly settings?: Partial<ReclaimSettings>
    readonly mib?: number
    readonly option?: string
  }[] = [
    { when: 'in an idle container', figures: {} },
    { when: 'at the limit of pressure', figures: { pressurePercent: 1 } },
    { when: 'where swap is allowed but there is none', figures: {}, settings: { swap: true } },
    {
      when: 'where it may swap, with anonymous pages',
      mib: 60,
      figures: { hasSwap: true },
      settings: { swap: true },
    },
    {
      ...{ when: 'without swapping, where the kernel takes swappiness', option: ' swappiness=0' },
      figures: { hasSwap: true, takesSwappiness: true },
    },
    {
      ...{ when: 'with the swappiness of the settings', mib: 60, option: ' swappiness=50' },
      ...{ figures: { hasSwap: true, takesSwappiness: true }, settings: { swap: true } },
    },
  ]
  it.each(reclaimed)('reclaims the unused memory $when', ({ figures, settings, mib = 40, option = '' }) => {
    expect(decide(figures, settings)).toEqual({ kind: 'reclaim', bytes: mib * MIB, option })
  })

  it.each([
    [{ pressurePercent: 1.1 }, 'pressure'],
    [{ quietPeriods: 2 }, 'too few quiet periods'],
    [{ inactiveFileBytes: MIB - 1 }, 'nothing unused'],
    [{ hasSwap: true }, 'this kernel cannot reclaim without swapping'],
  ])('leaves a container alone with %o: %s', (figures, because) => {
    expect(decide(figures)).toEqual({ kind: 'skip', because })
  })
})

describe('ContainerReclaim', () => {
  const idle: ReclaimTarget = { id: 'idle', cgroupPath: '/idle' }
  const { lines, log } = recordingLog()
  const guestWithIdle = () => memoryGuest({ '/idle': { inactiveFileMib: 40, currentMib: 50 } })

  function reclaimOf(
    { os }: MemoryGuest,
    targets: readonly ReclaimTarget[] = [idle],
    takesSwappiness = false,
  ) {
    lines.length = 0
    return new ContainerReclaim({ os, log, targets: () => targets, takesSwappiness })
  }

  async function period(
    guest: MemoryGuest,
    reclaim: ContainerReclaim,
    during: () => Promise<void> = async () => {},
    settings: ReclaimSettings = AT_ONCE,
  ): Promise<void> {
    await reclaim.begin()
    await during()
    guest.os.clock.advance(settings.periodSecs * 1000)
    await reclaim.end(settings, neverAborted)
  }

  it('reclaims the unused memory of an idle container in pieces, and logs how much', async () => {
    const guest = await guestWithIdle()
    await period(guest, reclaimOf(guest))
    const pieces = [16, 16, 8].map((mib) => `/idle ${mib * MIB}`)
    expect(guest.reclaims).toEqual(pieces)
    const fields = { containerId: 'idle', bytes: 40 * MIB, stopped: undefined }
    expect(lines).toEqual([{ level: 'info', message: 'memory reclaimed', fields }])
  })

  it('accepts that the kernel reclaims less', async () => {
    const guest = await guestWithIdle()
    const reclaim = reclaimOf(guest)
    await period(guest, reclaim, async () => {
      Object.assign(guest.cgroups['/idle'] ?? {}, { inactiveFileMib: 20 })
    })
    expect(guest.reclaims).toHaveLength(2)
    expect(lines).toMatchObject([{ message: 'memory reclaimed', fields: { bytes: 20 * MIB } }])
  })

  it('waits for as many quiet periods in a row as the settings say', async () => {
    const guest = await guestWithIdle()
    const reclaim = reclaimOf(guest)
    const pause = (stallUs: number) =>
      period(guest, reclaim, () => guest.stall('/idle', 'memory', stallUs), DEFAULTS)
    for (const stallUs of [0, 0, 7_000_000, 0, 0]) await pause(stallUs)
    expect(guest.reclaims).toEqual([])
    await pause(5_000_000)
    expect(guest.reclaims).toHaveLength(3)
  })

  it('stops when the container is stalled since the reclaim began', async () => {
    const guest = await guestWithIdle()
    const react = guest.os.files.onWrite
    guest.os.files.onWrite = async (path, value) => {
      await react(path, value)
      if (path === '/sys/fs/cgroup/idle/memory.reclaim') await guest.stall('/idle', 'io', 1)
    }
    await period(guest, reclaimOf(guest))
    expect(guest.reclaims).toHaveLength(1)
    expect(lines).toMatchObject([{ fields: { bytes: 16 * MIB, stopped: 'pressure' } }])
  })

  it('stops on request', async () => {
    const guest = await guestWithIdle()
    const stop = new AbortController()
    const react = guest.os.files.onWrite
    guest.os.files.onWrite = async (path, value) => {
      await react(path, value)
      stop.abort()
    }
    const reclaim = reclaimOf(guest, [idle, { id: 'other', cgroupPath: '/other' }])
    await reclaim.begin()
    await reclaim.end(AT_ONCE, stop.signal)
    expect(guest.reclaims).toHaveLength(1)
  })

  it.each([
    ['the agent’s own cgroup', '0::/idle\n'],
    ['a cgroup above the agent’s', '0::/idle/agent\n'],
  ])('leaves %s alone', async (_what, own) => {
    const guest = await guestWithIdle()
    await guest.os.files.put('/proc/self/cgroup', own)
    await period(guest, reclaimOf(guest))
    expect(guest.reclaims).toEqual([])
  })

  it('leaves a container alone that is new in this period, or whose pressure cannot be read', async () => {
    const guest = await guestWithIdle()
    const targets: ReclaimTarget[] = []
    await period(guest, reclaimOf(guest, targets), async () => void targets.push(idle))
    await guest.os.files.removeFile('/sys/fs/cgroup/idle/memory.pressure')
    await period(guest, reclaimOf(guest))
    expect(guest.reclaims).toEqual([])
  })

  it('reads no more of a container that makes cgroups below its own', async () => {
    const guest = await guestWithIdle()
    const read: string[] = []
    const readText = guest.os.files.readText.bind(guest.os.files)
    guest.os.files.readText = (path) => {
      if (path.startsWith('/sys/fs/cgroup/')) read.push(path)
      return readText(path)
    }
    await period(guest, reclaimOf(guest))
    const alone = read.splice(0)
    for (let n = 0; n < 100; n++) await guest.os.files.put(`/sys/fs/cgroup/idle/${n}/memory.stat`, '')
    Object.assign(guest.cgroups['/idle'] ?? {}, { inactiveFileMib: 40, currentMib: 50 })
    await guest.show('/idle')
    await period(guest, reclaimOf(guest))
    expect(read).toEqual(alone)
  })

  it('continues with the others when a container is gone or its cgroup fails', async () => {
    const cgroup = { inactiveFileMib: 16, currentMib: 16 }
    const guest = await memoryGuest({ '/gone': cgroup, '/broken': { ...cgroup }, '/idle': { ...cgroup } })
    const targets = ['gone', 'broken', 'idle'].map((id) => ({ id, cgroupPath: `/${id}` }))
    const react = guest.os.files.onWrite
    guest.os.files.onWrite = (path, value) => {
      if (path.startsWith('/sys/fs/cgroup/gone/')) throw kernelError('write', path, 'ENODEV')
      if (path.startsWith('/sys/fs/cgroup/broken/')) throw kernelError('write', path, 'EIO')
      return react(path, value)
    }
    await period(guest, reclaimOf(guest, targets))
    const error = 'write /sys/fs/cgroup/broken/memory.reclaim: EIO'
    expect(lines).toMatchObject([
      { level: 'warn', message: 'memory not reclaimed', fields: { containerId: 'broken', error } },
      { level: 'info', message: 'memory reclaimed', fields: { containerId: 'idle', bytes: 16 * MIB } },
    ])
  })

  it('does not swap unless allowed, where the kernel has that choice', async () => {
    const guest = await memoryGuest(
      { '/idle': { inactiveFileMib: 8, currentMib: 9 } },
      { takesSwappiness: true },
    )
    await guest.swapOn()
    await period(guest, reclaimOf(guest, [idle], true))
    expect(guest.reclaims).toEqual([`/idle ${8 * MIB} swappiness=0`])
  })

  it('leaves containers alone in a guest that swaps, where the kernel cannot be told not to', async () => {
    const guest = await guestWithIdle()
    await guest.swapOn()
    await period(guest, reclaimOf(guest))
    expect(guest.reclaims).toEqual([])
  })
})
