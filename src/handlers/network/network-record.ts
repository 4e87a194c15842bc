import { messageOf } from '../../base/errors.ts'
import type { Logger } from '../../base/log.ts'
import { KINDS, type StateStore } from '../../state/state-store.ts'

const SOURCES = ['metadata', 'rpc'] as const

/** The origin of a change: the host's metadata at boot, or a call. */
export type NetworkSource = (typeof SOURCES)[number]

const SUBJECTS = ['interface', 'address', 'route', 'neighbors', 'iptables', 'hostname'] as const

export type NetworkSubject = (typeof SUBJECTS)[number]

export interface AppliedSetting {
  readonly kind: NetworkSubject
  /** The object that was set, such as `eth0`, `10.0.0.2/24` or `0.0.0.0/0`; the family for packet filters. */
  readonly subject: string
  /** The new value, for human readers. */
  readonly value: string
  readonly source: NetworkSource
}

const LISTED = 8

/** The limit of settings; the oldest are dropped. */
const MOST_SETTINGS = 1024

const NAME = 'network'

/** The network settings that the agent made, with their sources; the last source wins. Outlives the agent. */
export class NetworkRecord {
  readonly #log: Logger
  readonly #onSet: (settings: readonly AppliedSetting[]) => void
  readonly #state: StateStore | undefined
  readonly #settings = new Map<string, AppliedSetting>()
  #isWhole = true

  /** `onSet` gets the settings of each operation and must not throw. `state` has those of previous agents. */
  constructor(
    log: Logger,
    onSet: (settings: readonly AppliedSetting[]) => void = () => {},
    state?: StateStore,
  ) {
    this.#log = log
    this.#onSet = onSet
    this.#state = state
    this.#restore()
  }

  /** False when settings were dropped or could not be restored. */
  get isWhole(): boolean {
    return this.#isWhole
  }

  /** Records one operation, and logs it in one line unless it is empty. */
  note(source: NetworkSource, settings: readonly Omit<AppliedSetting, 'source'>[]): void {
    if (settings.length === 0) return
    for (const setting of settings) {
      const key = keyOf(setting)
      // Delete first, to keep the settings in the order of their last change.
      this.#settings.delete(key)
      this.#settings.set(key, { ...setting, source })
    }
    for (const key of this.#settings.keys()) {
      if (this.#settings.size <= MOST_SETTINGS) break
      this.#settings.delete(key)
      this.#isWhole = false
    }
    this.#save()
    this.#onSet(settings.map((setting) => ({ ...setting, source })))
    const listed = settings.slice(0, LISTED).map(({ kind, subject, value }) => `${kind} ${subject}: ${value}`)
    this.#log.info('network set', { source, count: settings.length, settings: listed.join('; ') })
  }

  /** The oldest first. */
  settings(): readonly AppliedSetting[] {
    return [...this.#settings.values()]
  }

  /** An unreadable record does not fail the agent's start: the kernel still has the network. */
  #restore(): void {
    try {
      const payload = this.#state?.read(KINDS.network, NAME)
      if (payload === undefined) return
      this.#isWhole = !payload.isCut
      for (const { kind, subject, value, source } of payload.settings) {
        const setting = { kind: oneOf(SUBJECTS, kind), subject, value, source: oneOf(SOURCES, source) }
        this.#settings.set(keyOf(setting), setting)
      }
    } catch (error) {
      this.#isWhole = false
      this.#log.warn('network settings of the previous agent unknown', { error: messageOf(error) })
    }
  }

  #save(): void {
    try {
      this.#state?.write(KINDS.network, NAME, {
        settings: this.settings().map((setting) => ({ ...setting })),
        isCut: !this.#isWhole,
      })
    } catch (error) {
      this.#log.warn('network settings not saved', { error: messageOf(error) })
    }
  }
}

function keyOf({ kind, subject }: Pick<AppliedSetting, 'kind' | 'subject'>): string {
  return `${kind} ${subject}`
}

function oneOf<T extends string>(words: readonly T[], text: string): T {
  const found = words.find((word) => word === text)
  if (found === undefined) throw new Error(`${text}: want one of ${words.join(', ')}`)
  return found
}
