import type { Files } from '../../os/files/files.ts'

const PCI = '/sys/bus/pci'

export class PciBus {
  readonly #files: Files
  #running: Promise<void> | undefined
  #next: Promise<void> | undefined

  constructor(files: Files) {
    this.#files = files
  }

  /**
   * Makes the kernel scan every bus, for machines whose hot-plug causes no interrupt. A rescan takes up to a second, in which
   * it blocks a thread and all hot-plug. So only one runs at a time, and callers that arrive during it share the next one,
   * because the current one may have passed their device already.
   */
  rescan(): Promise<void> {
    if (this.#running === undefined) return this.#run()
    this.#next ??= this.#running.then(
      () => this.#run(),
      () => this.#run(),
    )
    return this.#next
  }

  /** The devices in sysfs with their drivers: `0000:00:03.0 (virtio-pci)`. */
  async candidates(): Promise<readonly string[]> {
    const names = await this.#files.list(`${PCI}/devices`)
    return Promise.all(
      names.map(async (name) => {
        const driver = `${PCI}/devices/${name}/driver`
        if ((await this.#files.lstat(driver)) === undefined) return `${name} (no driver)`
        return `${name} (${(await this.#files.readLink(driver)).replace(/.*\//, '')})`
      }),
    )
  }

  async #run(): Promise<void> {
    const running = this.#files.write(`${PCI}/rescan`, '1')
    this.#running = running
    this.#next = undefined
    try {
      await running
    } finally {
      // Later callers need a new rescan; the one in `#next` has not begun yet.
      if (this.#running === running) this.#running = undefined
    }
  }
}
