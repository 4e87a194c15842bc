import { describe, expect, it } from 'vitest'
import { MemAgentCompactConfig, MemAgentMemcgConfig } from '../../../src/gen/agent.ts'
import { createMemAgent, type MemAgentConfig } from '../../../src/handlers/guest/mem-agent/mem-agent.ts'
import { kernelError } from '../../../src/os/errors.ts'
import { KINDS, StateStore } from '../../../src/state/state-store.ts'
import { MemoryStateFiles } from '../../support/fakes/files/memory-state-files.ts'
import { recordingLog } from '../../support/fakes/recording-log.ts'
import { MEM_AGENT_DEFAULTS, type MemoryGuest, memoryGuest } from '../../support/handlers/guest/mem-agent.ts'

const AT_ONCE = { ...MEM_AGENT_DEFAULTS.reclaim, evictionRunAgingCountMin: 1 }
const NO_RECLAIM = { ...MEM_AGENT_DEFAULTS.reclaim, disabled: true }
const NO_COMPACTION = { ...MEM_AGENT_DEFAULTS.compact, disabled: true }

const guestWithIdle = (options = {}) =>
  memoryGuest({ '/idle': { inactiveFileMib: 8, currentMib: 10 } }, options)

describe('the mem-agent', () => {
  const { lines, log } = recordingLog()

  function memAgentOf(
    { os }: MemoryGuest,
    config: Partial<MemAgentConfig>,
    state = new StateStore(new MemoryStateFiles()),
  ) {
    lines.length = 0
    os.tools.script(() => ({}))
    const targets = [{ id: 'idle', cgroupPath: '/idle' }]
    return createMemAgent({
      ...{ os, log, state, targets: () => targets, vminit: '/vminit' },
      config: { ...MEM_AGENT_DEFAULTS, enabled: true, ...config },
    })
  }

  const memcg = (request: Partial<MemAgentMemcgConfig>) => MemAgentMemcgConfig.fromPartial(request)
  const compact = (request: Partial<MemAgentCompactConfig>) => MemAgentCompactConfig.fromPartial(request)
  const timers = ({ os }: MemoryGuest) => expect.poll(() => os.clock.sleeping)

  it('has no timer and refuses new settings when it is off', async () => {
    const guest = await guestWithIdle()
    const memAgent = memAgentOf(guest, { enabled: false })
    await memAgent.start()
    expect(guest.os.clock.sleeping).toBe(0)
    const disabled = { code: 'INTERNAL', message: 'mem-agent is disabled' }
    await expect(memAgent.setReclaim(memcg({ periodSecs: 0n }))).rejects.toMatchObject(disabled)
    await expect(memAgent.setCompact(compact({}))).rejects.toMatchObject(disabled)
    memAgent.stop()
  })

  it('has one timer for reclaim and one for compaction, which end with it', async () => {
    const guest = await guestWithIdle()
    const memAgent = memAgentOf(guest, { reclaim: AT_ONCE })
    await memAgent.start()
    await timers(guest).toBe(2)
    guest.os.clock.advance(600_000)
    await expect.poll(() => lines.map(({ message }) => message)).toContain('memory compacted')
    await expect.poll(() => guest.reclaims).toEqual([`/idle ${8 * 2 ** 20}`])
    await timers(guest).toBe(2)
    memAgent.stop()
    await timers(guest).toBe(0)
  })

  it('has no timer for what is turned off, until a call turns it on, and off again', async () => {
    const guest = await guestWithIdle()
    const memAgent = memAgentOf(guest, { reclaim: NO_RECLAIM, compact: NO_COMPACTION })
    await memAgent.start()
    expect(guest.os.clock.sleeping).toBe(0)
    await memAgent.setReclaim(memcg({ disabled: false, periodSecs: 5n, evictionRunAgingCountMin: 1n }))
    await timers(guest).toBe(1)
    guest.os.clock.advance(5000)
    await expect.poll(() => guest.reclaims).toHaveLength(1)
    await timers(guest).toBe(1)
    await memAgent.setReclaim(memcg({ disabled: true }))
    await timers(guest).toBe(0)
    await memAgent.setCompact(compact({ disabled: false, compactForceTimes: 2n ** 64n - 1n }))
    await timers(guest).toBe(1)
    memAgent.stop()
    await timers(guest).toBe(0)
  })

  it('begins a new period when settings change, and keeps those that the call does not name', async () => {
    const guest = await guestWithIdle()
    const memAgent = memAgentOf(guest, { reclaim: { ...AT_ONCE, periodSecs: 10 }, compact: NO_COMPACTION })
    await memAgent.start()
    await timers(guest).toBe(1)
    guest.os.clock.advance(9000)
    await memAgent.setReclaim(memcg({ swappinessMax: 10 }))
    await timers(guest).toBe(1)
    guest.os.clock.advance(9000)
    expect(guest.reclaims).toEqual([])
    guest.os.clock.advance(1000)
    await expect.poll(() => guest.reclaims).toHaveLength(1)
    memAgent.stop()
  })

  it('keeps the settings of calls after the death of the agent', async () => {
    const guest = await guestWithIdle()
    const state = new StateStore(new MemoryStateFiles())
    const dead = memAgentOf(guest, { reclaim: AT_ONCE, compact: NO_COMPACTION }, state)
    await dead.setReclaim(memcg({ periodSecs: 5n }))
    await dead.setReclaim(memcg({ swap: true }))
    await dead.setCompact(compact({ disabled: false }))
    const memAgent = memAgentOf(guest, { reclaim: AT_ONCE, compact: NO_COMPACTION }, state)
    await memAgent.start()
    await timers(guest).toBe(2)
    guest.os.clock.advance(5000)
    await expect.poll(() => guest.reclaims).toHaveLength(1)
    memAgent.stop()
  })

  it('has the configured settings, with a warning, when the settings of calls cannot be read', async () => {
    const files = new MemoryStateFiles()
    files.write('guest', Buffer.from('damaged'))
    const config = { reclaim: NO_RECLAIM, compact: NO_COMPACTION }
    const memAgent = memAgentOf(await guestWithIdle(), config, new StateStore(files))
    const message = 'saved settings of the mem-agent not read'
    expect(lines).toMatchObject([{ level: 'critical', message }])
    await memAgent.setReclaim(memcg({ periodSecs: 5n }))
    expect(new StateStore(files).read(KINDS.guest, 'guest')?.reclaim).toMatchObject({ periodSecs: 5n })
  })

  it.each([
    [{ swappinessMax: 201 }, 'swappiness_max: 201, want 0 to 200'],
    [{ periodSecs: 0n }, 'period_secs: 0, want 1 to 2147483'],
    [{ periodSecs: 2n ** 64n - 1n }, 'period_secs: 18446744073709551615, want 1 to 2147483'],
    [{ periodPsiPercentLimit: 101 }, 'period_psi_percent_limit: 101, want 0 to 100'],
    [{ evictionPsiPercentLimit: 101 }, 'eviction_psi_percent_limit: 101, want 0 to 100'],
  ])('refuses all of the settings %o of reclaim', async (request, message) => {
    const guest = await guestWithIdle()
    const memAgent = memAgentOf(guest, { reclaim: NO_RECLAIM, compact: NO_COMPACTION })
    await memAgent.start()
    const setting = memAgent.setReclaim(memcg({ disabled: false, ...request }))
    await expect(setting).rejects.toMatchObject({ code: 'INVALID_ARGUMENT', message })
    expect(guest.os.clock.sleeping).toBe(0)
    memAgent.stop()
  })

  it.each([
    [{ periodSecs: 0n }, 'period_secs: 0, want 1 to 2147483'],
    [{ periodPsiPercentLimit: 101 }, 'period_psi_percent_limit: 101, want 0 to 100'],
    [{ compactPsiPercentLimit: 101 }, 'compact_psi_percent_limit: 101, want 0 to 100'],
    [{ compactSecMax: -1n }, 'compact_sec_max: -1, want 1 to 2147483'],
    [{ compactOrder: 11 }, 'compact_order: 11, want 0 to 10'],
  ])('refuses the settings %o of compaction', async (request, message) => {
    const memAgent = memAgentOf(await guestWithIdle(), {})
    const setting = memAgent.setCompact(compact(request))
    await expect(setting).rejects.toMatchObject({ code: 'INVALID_ARGUMENT', message })
  })

  it('names the setting without effect once, where memory.reclaim accepts no swappiness', async () => {
    const guest = await guestWithIdle()
    const memAgent = memAgentOf(guest, {})
    await memAgent.start()
    const because = "mem-agent: this kernel's memory.reclaim takes no swappiness"
    const fields = { settings: 'mem_agent_memcg_swappiness_max', because }
    expect(lines).toEqual([{ level: 'warn', message: 'settings without effect', fields }])
    memAgent.stop()
  })

  it('names no setting when all have an effect', async () => {
    const memAgent = memAgentOf(await guestWithIdle({ takesSwappiness: true }), {})
    await memAgent.start()
    expect(lines).toEqual([])
    memAgent.stop()
  })

  const GENERATIONS = '/sys/kernel/mm/lru_gen/enabled'

  it('has the kernel count idle pages by two lists, not by generations', async () => {
    const guest = await guestWithIdle()
    await guest.os.files.put(GENERATIONS, '0x0007\n')
    const memAgent = memAgentOf(guest, {})
    await memAgent.start()
    expect(await guest.os.files.readText(GENERATIONS)).toBe('0')
    memAgent.stop()
  })

  it('continues with a warning where generations cannot be turned off', async () => {
    const guest = await guestWithIdle({ takesSwappiness: true })
    await guest.os.files.put(GENERATIONS, '0x0007\n')
    guest.os.files.onWrite = (path) => {
      if (path === GENERATIONS) throw kernelError('write', path, 'EROFS')
    }
    const memAgent = memAgentOf(guest, {})
    await memAgent.start()
    const fields = { error: `write ${GENERATIONS}: EROFS` }
    expect(lines).toEqual([{ level: 'warn', message: 'idle anonymous memory is not reclaimed', fields }])
    await timers(guest).toBe(2)
    memAgent.stop()
  })

  const RECLAIM = 'mem_agent_memcg_*'
  const COMPACTION = 'mem_agent_compact_*'
  it.each([
    {
      ...{ missing: '/sys/fs/cgroup/cgroup.controllers', settings: [RECLAIM] },
      because: 'mem-agent: the guest uses cgroup v1, want cgroup v2 for reclaim',
    },
    {
      ...{ missing: '/sys/fs/cgroup/memory.reclaim', settings: [RECLAIM] },
      because: 'mem-agent: the kernel has no memory.reclaim, want Linux 5.19 or later',
    },
    {
      ...{ missing: '/proc/sys/vm/compact_memory', settings: [COMPACTION] },
      because: 'mem-agent: the kernel has no /proc/sys/vm/compact_memory, want one with CONFIG_COMPACTION',
    },
    {
      ...{ missing: '/proc/pressure/memory', settings: [RECLAIM, COMPACTION] },
      because: 'mem-agent: the kernel has no /proc/pressure, want one with CONFIG_PSI, booted without psi=0',
    },
  ])('logs once what a guest without $missing cannot do, and refuses it', async (row) => {
    const guest = await guestWithIdle({ takesSwappiness: true })
    await guest.os.files.removeFile(row.missing)
    const memAgent = memAgentOf(guest, {})
    await memAgent.start()
    const said = row.settings.map((settings) => ({ settings, because: row.because }))
    expect(lines.map(({ fields }) => fields)).toEqual(said)
    await timers(guest).toBe(2 - row.settings.length)
    const refused = { code: 'FAILED_PRECONDITION', message: row.because }
    if (row.settings.includes(RECLAIM)) {
      await expect(memAgent.setReclaim(memcg({}))).rejects.toMatchObject(refused)
    } else await memAgent.setReclaim(memcg({}))
    if (row.settings.includes(COMPACTION)) {
      await expect(memAgent.setCompact(compact({}))).rejects.toMatchObject(refused)
    } else await memAgent.setCompact(compact({}))
    memAgent.stop()
    await timers(guest).toBe(0)
  })

  it('continues in the next period after a failure', async () => {
    const guest = await guestWithIdle()
    const memAgent = memAgentOf(guest, { reclaim: NO_RECLAIM })
    guest.os.tools.script(() => ({ exitCode: 1, stderr: 'no' }))
    await memAgent.start()
    await timers(guest).toBe(1)
    guest.os.clock.advance(600_000)
    await expect.poll(() => lines.map(({ message }) => message)).toContain('mem-agent failed')
    await timers(guest).toBe(1)
    memAgent.stop()
  })
})
