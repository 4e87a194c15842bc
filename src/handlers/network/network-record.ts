import type { Logger } from '../../base/log.ts'

/** Who asked for a change: the host's metadata at boot, or a call. */
export type NetworkSource = 'metadata' | 'rpc'

export type NetworkSubject = 'interface' | 'address' | 'route' | 'neighbors' | 'iptables' | 'hostname'

/** One thing that was set, and how it was set last. */
export interface AppliedSetting {
  readonly kind: NetworkSubject
  /** Which one, such as `eth0`, `10.0.0.2/24` or `0.0.0.0/0`; of packet filters the family. */
  readonly subject: string
  /** What it was set to, for people. */
  readonly value: string
  readonly source: NetworkSource
}

/** Most subjects that a log line lists. */
const LISTED = 8

/**
 * What the agent has set in the guest's network, and on whose behalf: the one place that a later question about it is
 * answered from. What is set again replaces what was noted before, so that the last source wins.
 */
export class NetworkRecord {
  readonly #log: Logger
  readonly #settings = new Map<string, AppliedSetting>()

  constructor(log: Logger) {
    this.#log = log
  }

  /** Notes what one operation has set, and logs it in one line. Nothing set, nothing logged. */
  note(source: NetworkSource, settings: readonly Omit<AppliedSetting, 'source'>[]): void {
    if (settings.length === 0) return
    for (const setting of settings) {
      const key = `${setting.kind} ${setting.subject}`
      // Deleted first, so that the settings stay in the order in which they were made.
      this.#settings.delete(key)
      this.#settings.set(key, { ...setting, source })
    }
    const listed = settings.slice(0, LISTED).map(({ kind, subject, value }) => `${kind} ${subject}: ${value}`)
    this.#log.info('network set', { source, count: settings.length, settings: listed.join('; ') })
  }

  /** Everything that was set, the oldest first. */
  settings(): readonly AppliedSetting[] {
    return [...this.#settings.values()]
  }
}
