import { messageOf } from '../base/errors.ts'
import type { Logger } from '../base/log.ts'
import type { Os } from '../os/os.ts'
import { readIfThere } from './read-if-there.ts'

/** A driver that takes longer to initialise will not come. */
const MODPROBE_TIMEOUT_MS = 30_000

/** What modprobe says of an alias that no module has: `Module acpi:… not found in directory /lib/modules/…`. */
const NO_MODULE = / not found in directory /

/** Most failures that are remembered. */
const REMEMBERED_FAILURES = 8

/** Buses whose devices name features, not drivers that a guest waits for: CPUs ask for a dozen crypto modules. */
const PASSED_OVER = new Set(['cpu'])

/**
 * Loads the drivers of devices, as udev does where there is one: by MODALIAS, for what is in sysfs and for what comes
 * (spec F.3). Each alias is asked for once. Nobody waits for it: a device that gets its driver makes events.
 */
export class DeviceDrivers {
  readonly #os: Pick<Os, 'files' | 'tools' | 'uevents'>
  readonly #log: Logger
  readonly #asked = new Set<string>()
  readonly #failures: string[] = []
  #queue: string[] = []
  #working: Promise<void> | undefined

  constructor(os: Pick<Os, 'files' | 'tools' | 'uevents'>, log: Logger) {
    this.#os = os
    this.#log = log
  }

  /** What modprobe said about drivers that it found and could not load, the latest last. */
  get failures(): readonly string[] {
    return this.#failures
  }

  /** Begins to load: for devices that are there, and from now on for each that is added. */
  follow(): { close(): void } {
    // Listening begins before the look at sysfs: what appears in between is not missed.
    const listening = this.#os.uevents.listen({
      event: ({ action, modalias }) => {
        if (action === 'add') this.#ask([modalias])
      },
      error: () => void this.#loadForPresent(),
    })
    void this.#loadForPresent()
    return listening
  }

  /** Resolves when there is nothing left to load for now. */
  async idle(): Promise<void> {
    while (this.#working !== undefined) await this.#working
  }

  /** For every device in sysfs that has no driver yet. Never rejects. */
  async #loadForPresent(): Promise<void> {
    try {
      const buses = (await this.#os.files.list('/sys/bus')).filter((bus) => !PASSED_OVER.has(bus))
      const aliases = await Promise.all(buses.map((bus) => this.#aliasesOn(`/sys/bus/${bus}/devices`)))
      this.#ask(aliases.flat())
    } catch (error) {
      this.#failed(messageOf(error))
    }
  }

  async #aliasesOn(folder: string): Promise<readonly string[]> {
    const { files } = this.#os
    const devices = await files.list(folder)
    return Promise.all(
      devices.map(async (device) => {
        if ((await files.lstat(`${folder}/${device}/driver`)) !== undefined) return ''
        return (await readIfThere(files, `${folder}/${device}/modalias`)) ?? ''
      }),
    )
  }

  #ask(aliases: readonly string[]): void {
    for (const alias of aliases) {
      if (alias === '' || this.#asked.has(alias)) continue
      this.#asked.add(alias)
      this.#queue.push(alias)
    }
    if (this.#queue.length > 0) this.#working ??= this.#loadQueued()
  }

  /** One modprobe at a time, which takes all that has been asked for meanwhile. Never rejects. */
  async #loadQueued(): Promise<void> {
    while (this.#queue.length > 0) {
      const aliases = this.#queue
      this.#queue = []
      await this.#load(aliases)
    }
    this.#working = undefined
  }

  async #load(aliases: readonly string[]): Promise<void> {
    try {
      // Not --quiet, with which it is silent about what it cannot load as well.
      const argv = ['/sbin/modprobe', '--all', '--use-blacklist', '--', ...aliases] as const
      const result = await this.#os.tools.run(argv, { timeoutMs: MODPROBE_TIMEOUT_MS })
      // The exit code tells nothing: most devices of a machine need no module.
      const lines = result.stderr.split('\n').map((line) => line.trim())
      for (const line of lines) if (line !== '' && !NO_MODULE.test(line)) this.#failed(line)
    } catch (error) {
      this.#failed(messageOf(error))
    }
  }

  #failed(text: string): void {
    this.#log.warn('device driver not loaded', { error: text })
    if (this.#failures.push(text) > REMEMBERED_FAILURES) this.#failures.shift()
  }
}
