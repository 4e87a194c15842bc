import type { Logger } from '../../base/log.ts'

/** The origin of a change: the host's metadata at boot, or a call. */
export type NetworkSource = 'metadata' | 'rpc'

export type NetworkSubject = 'interface' | 'address' | 'route' | 'neighbors' | 'iptables' | 'hostname'

/** One setting, as it was last set. */
export interface AppliedSetting {
  readonly kind: NetworkSubject
  /** The object that was set, such as `eth0`, `10.0.0.2/24` or `0.0.0.0/0`; the family for packet filters. */
  readonly subject: string
  /** The new value, for human readers. */
  readonly value: string
  readonly source: NetworkSource
}

/** The largest number of subjects in a log line. */
const LISTED = 8

/**
 * A record of what the agent has set in the guest's network, and from which source. A new setting replaces the earlier
 * one of the same subject, so the last source wins.
 */
export class NetworkRecord {
  readonly #log: Logger
  readonly #onSet: (settings: readonly AppliedSetting[]) => void
  readonly #settings = new Map<string, AppliedSetting>()

  /** `onSet` is told of what each operation has set. It must not throw. */
  constructor(log: Logger, onSet: (settings: readonly AppliedSetting[]) => void = () => {}) {
    this.#log = log
    this.#onSet = onSet
  }

  /** Records what one operation has set, and logs it in one line unless it is empty. */
  note(source: NetworkSource, settings: readonly Omit<AppliedSetting, 'source'>[]): void {
    if (settings.length === 0) return
    for (const setting of settings) {
      const key = `${setting.kind} ${setting.subject}`
      // Deleted first, so that the settings stay in the order of their last change.
      this.#settings.delete(key)
      this.#settings.set(key, { ...setting, source })
    }
    this.#onSet(settings.map((setting) => ({ ...setting, source })))
    const listed = settings.slice(0, LISTED).map(({ kind, subject, value }) => `${kind} ${subject}: ${value}`)
    this.#log.info('network set', { source, count: settings.length, settings: listed.join('; ') })
  }

  /** All settings, the oldest first. */
  settings(): readonly AppliedSetting[] {
    return [...this.#settings.values()]
  }
}
