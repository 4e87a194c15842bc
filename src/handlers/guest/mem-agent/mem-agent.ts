import { AgentError, messageOf } from '../../../base/errors.ts'
import type { Logger } from '../../../base/log.ts'
import type { MemAgentCompactConfig, MemAgentMemcgConfig } from '../../../gen/agent.ts'
import type { Os } from '../../../os/os.ts'
import type { StateStore } from '../../../state/state-store.ts'
import { CalledSettings } from './called-settings.ts'
import { COMPACT_FILE, Compaction } from './compaction.ts'
import { GUEST_PRESSURE } from './pressure.ts'
import { ContainerReclaim, type ReclaimTarget } from './reclaim.ts'
import { type CompactSettings, changedCompact, changedReclaim, type ReclaimSettings } from './settings.ts'

export interface MemAgentConfig {
  readonly enabled: boolean
  readonly reclaim: ReclaimSettings
  readonly compact: CompactSettings
}

/** Reclaims memory that containers no longer use, and compacts free memory, so that the host gets whole blocks back. */
export interface MemAgent {
  /**
   * Changes the settings, for later agents too, and begins a new period. Throws INTERNAL `mem-agent is disabled`,
   * INVALID_ARGUMENT for a wrong value, FAILED_PRECONDITION when the guest's kernel cannot reclaim.
   */
  setReclaim(request: MemAgentMemcgConfig): Promise<void>
  /** Like `setReclaim`, for compaction. */
  setCompact(request: MemAgentCompactConfig): Promise<void>
  /** Begins the periods, and logs which settings have no effect in this guest. Does nothing when disabled. */
  start(): Promise<void>
  /** Ends the periods, and a reclaim or compaction under way. */
  stop(): void
}

export function createMemAgent(dependencies: {
  readonly os: Pick<Os, 'files' | 'clock' | 'tools'>
  readonly log: Logger
  readonly config: MemAgentConfig
  /** Stores the settings that calls change. */
  readonly state: Pick<StateStore, 'read' | 'write'>
  readonly targets: () => readonly ReclaimTarget[]
  readonly vminit: string
}): MemAgent {
  const { os, log, config, state, targets, vminit } = dependencies
  const called = new CalledSettings(state, log)
  const reclaim = new RunningSettings(changedReclaim(config.reclaim, called.reclaim))
  const compact = new RunningSettings(changedCompact(config.compact, called.compact))
  const stopped = new AbortController()
  let kernel: Promise<KernelSupport> | undefined
  const support = () => {
    if (!config.enabled) throw new AgentError('INTERNAL', 'mem-agent is disabled', { fault: 'caller' })
    kernel ??= kernelSupport(os)
    return kernel
  }
  return {
    setReclaim: async (request) => {
      const { withoutReclaim } = await support()
      const changed = changedReclaim(reclaim.value, request)
      if (withoutReclaim !== undefined) throw new AgentError('FAILED_PRECONDITION', withoutReclaim)
      called.addReclaim(request)
      reclaim.set(changed)
    },
    setCompact: async (request) => {
      const { withoutCompaction } = await support()
      const changed = changedCompact(compact.value, request)
      if (withoutCompaction !== undefined) throw new AgentError('FAILED_PRECONDITION', withoutCompaction)
      called.addCompact(request)
      compact.set(changed)
    },
    start: async () => {
      if (!config.enabled) return
      const supported = await support()
      const { withoutReclaim, withoutCompaction, takesSwappiness } = supported
      logWithoutEffect(log, supported)
      const run = { clock: os.clock, log, stopped: stopped.signal }
      if (withoutReclaim === undefined) {
        await turnGenerationsOff(os.files, log)
        void runPeriods(new ContainerReclaim({ os, log, targets, takesSwappiness }), reclaim, run)
      }
      if (withoutCompaction === undefined) void runPeriods(new Compaction({ os, log, vminit }), compact, run)
    },
    stop: () => stopped.abort(),
  }
}

interface KernelSupport {
  /** Why the kernel cannot reclaim; undefined when it can. */
  readonly withoutReclaim: string | undefined
  readonly withoutCompaction: string | undefined
  /** Whether `memory.reclaim` takes `swappiness=`. */
  readonly takesSwappiness: boolean
}

const RECLAIM_FILE = '/sys/fs/cgroup/memory.reclaim'

async function kernelSupport({ files }: Pick<Os, 'files'>): Promise<KernelSupport> {
  const reasonWithout = async (path: string, reason: string) =>
    (await files.stat(path)) === undefined ? `mem-agent: ${reason}` : undefined
  const noPressure = await reasonWithout(
    GUEST_PRESSURE.memory,
    'the kernel has no /proc/pressure, want one with CONFIG_PSI, booted without psi=0',
  )
  const withoutReclaim =
    (await reasonWithout(
      '/sys/fs/cgroup/cgroup.controllers',
      'the guest uses cgroup v1, want cgroup v2 for reclaim',
    )) ??
    (await reasonWithout(RECLAIM_FILE, 'the kernel has no memory.reclaim, want Linux 5.19 or later')) ??
    noPressure
  const withoutCompaction =
    (await reasonWithout(
      COMPACT_FILE,
      `the kernel has no ${COMPACT_FILE}, want one with CONFIG_COMPACTION`,
    )) ?? noPressure
  const takesSwappiness =
    withoutReclaim === undefined && (await accepts(files, RECLAIM_FILE, '0 swappiness=0'))
  return { withoutReclaim, withoutCompaction, takesSwappiness }
}

/** Whether the kernel accepts `value`, which must be without effect. */
async function accepts(files: Os['files'], path: string, value: string): Promise<boolean> {
  return files.write(path, value).then(
    () => true,
    () => false,
  )
}

/** The switch of the multi-generational LRU (Documentation/admin-guide/mm/multigen_lru.rst). */
const GENERATIONS_FILE = '/sys/kernel/mm/lru_gen/enabled'

/**
 * Makes the kernel keep active and inactive lists. With generations it counts a new anonymous page as active until it has to
 * reclaim, so `inactive_anon` would stay 0 in an idle container.
 */
async function turnGenerationsOff(files: Os['files'], log: Logger): Promise<void> {
  if ((await files.stat(GENERATIONS_FILE)) === undefined) return
  await files.write(GENERATIONS_FILE, '0').catch((error) => {
    log.warn('idle anonymous memory is not reclaimed', { error: messageOf(error) })
  })
}

function logWithoutEffect(log: Logger, support: KernelSupport): void {
  const { withoutReclaim, withoutCompaction, takesSwappiness } = support
  const warn = (settings: string, because: string) =>
    log.warn('settings without effect', { settings, because })
  if (withoutReclaim !== undefined) warn('mem_agent_memcg_*', withoutReclaim)
  else if (!takesSwappiness) {
    warn('mem_agent_memcg_swappiness_max', "mem-agent: this kernel's memory.reclaim takes no swappiness")
  }
  if (withoutCompaction !== undefined) warn('mem_agent_compact_*', withoutCompaction)
}

class RunningSettings<Settings> {
  #value: Settings
  #changed = new AbortController()

  constructor(value: Settings) {
    this.#value = value
  }

  get value(): Settings {
    return this.#value
  }

  /** Fires at the next change. */
  get changed(): AbortSignal {
    return this.#changed.signal
  }

  set(value: Settings): void {
    const before = this.#changed
    this.#value = value
    this.#changed = new AbortController()
    before.abort()
  }
}

interface PeriodicWork<Settings> {
  /** Must not throw: the next period would begin at once. */
  begin(): Promise<void>
  end(settings: Settings, signal: AbortSignal): Promise<void>
}

interface Period {
  readonly disabled: boolean
  readonly periodSecs: number
}

/** A change of settings ends the work under way and begins a new period. No timer runs while `disabled`. Never rejects. */
async function runPeriods<Settings extends Period>(
  work: PeriodicWork<Settings>,
  settings: RunningSettings<Settings>,
  {
    clock,
    log,
    stopped,
  }: { readonly clock: Os['clock']; readonly log: Logger; readonly stopped: AbortSignal },
): Promise<void> {
  while (!stopped.aborted) {
    const { value } = settings
    const interrupted = AbortSignal.any([settings.changed, stopped])
    try {
      if (value.disabled) {
        await new Promise((resolve) => interrupted.addEventListener('abort', resolve, { once: true }))
        continue
      }
      await work.begin()
      await clock.sleep(value.periodSecs * 1000, interrupted)
      await work.end(value, interrupted)
    } catch (error) {
      if (!interrupted.aborted) log.warn('mem-agent failed', { error: messageOf(error) })
    }
  }
}
