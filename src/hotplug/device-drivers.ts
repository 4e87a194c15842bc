import { messageOf } from '../base/errors.ts'
import type { Logger } from '../base/log.ts'
import type { Os } from '../os/os.ts'
import { readIfPresent } from './sysfs.ts'

/** A driver that needs longer than this to initialise counts as failed. */
const MODPROBE_TIMEOUT_MS = 30_000

/** The message of modprobe for an alias without a module: `Module acpi:… not found in directory /lib/modules/…`. */
const NO_MODULE = / not found in directory /

const MAX_FAILURES = 8

/** Buses whose devices need no driver: CPUs would request a dozen crypto modules. */
const SKIPPED_BUSES = new Set(['cpu'])

/** Loads drivers by MODALIAS as udev does, each alias once. Callers need not wait, because a new driver causes uevents. */
export class DeviceDrivers {
  readonly #os: Pick<Os, 'files' | 'tools' | 'uevents'>
  readonly #log: Logger
  readonly #requested = new Set<string>()
  readonly #failures: string[] = []
  #queue: string[] = []
  #working: Promise<void> | undefined

  constructor(os: Pick<Os, 'files' | 'tools' | 'uevents'>, log: Logger) {
    this.#os = os
    this.#log = log
  }

  /** The messages of modprobe about drivers that it found but could not load, the latest last. */
  get failures(): readonly string[] {
    return this.#failures
  }

  /** Loads drivers for the present devices and for each that is added, until `close`. */
  follow(): { close(): void } {
    // Listen before reading sysfs, so that a device that appears in between is not missed.
    const listening = this.#os.uevents.listen({
      event: ({ action, modalias }) => {
        if (action === 'add') this.#request([modalias])
      },
      error: () => void this.#loadForPresent(),
    })
    void this.#loadForPresent()
    return listening
  }

  /** Resolves when no driver is being loaded and none is queued. */
  async idle(): Promise<void> {
    while (this.#working !== undefined) await this.#working
  }

  /** Requests drivers for the devices in sysfs that have none. Never rejects. */
  async #loadForPresent(): Promise<void> {
    try {
      const buses = (await this.#os.files.list('/sys/bus')).filter((bus) => !SKIPPED_BUSES.has(bus))
      const aliases = await Promise.all(buses.map((bus) => this.#aliasesOn(`/sys/bus/${bus}/devices`)))
      this.#request(aliases.flat())
    } catch (error) {
      this.#addFailure(messageOf(error))
    }
  }

  async #aliasesOn(folder: string): Promise<readonly string[]> {
    const { files } = this.#os
    const devices = await files.list(folder)
    return Promise.all(
      devices.map(async (device) => {
        if ((await files.lstat(`${folder}/${device}/driver`)) !== undefined) return ''
        return (await readIfPresent(files, `${folder}/${device}/modalias`)) ?? ''
      }),
    )
  }

  #request(aliases: readonly string[]): void {
    for (const alias of aliases) {
      if (alias === '' || this.#requested.has(alias)) continue
      this.#requested.add(alias)
      this.#queue.push(alias)
    }
    if (this.#queue.length > 0) this.#working ??= this.#loadQueued()
  }

  /** Runs one modprobe at a time with all aliases that were queued during the last one. Never rejects. */
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
      // --quiet would also hide the errors of modules that cannot be loaded.
      const argv = ['/sbin/modprobe', '--all', '--use-blacklist', '--', ...aliases] as const
      const result = await this.#os.tools.run(argv, { timeoutMs: MODPROBE_TIMEOUT_MS })
      // The exit code does not help, because most devices of a machine need no module.
      const lines = result.stderr.split('\n').map((line) => line.trim())
      for (const line of lines) if (line !== '' && !NO_MODULE.test(line)) this.#addFailure(line)
    } catch (error) {
      this.#addFailure(messageOf(error))
    }
  }

  #addFailure(text: string): void {
    this.#log.warn('device driver not loaded', { error: text })
    if (this.#failures.push(text) > MAX_FAILURES) this.#failures.shift()
  }
}
