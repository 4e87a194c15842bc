import type { Files } from '../os/files/files.ts'

const PCI = '/sys/bus/pci'

/** The PCI buses as a whole. */
export class PciBus {
  readonly #files: Files
  #running: Promise<void> | undefined
  #next: Promise<void> | undefined

  constructor(files: Files) {
    this.#files = files
  }

  /**
   * Has the kernel look for devices on every bus, for machines whose hot-plug makes no interrupt. That can take it a
   * good part of a second, in which it plugs nothing in and holds a thread; so there is one at a time, and whoever asks
   * meanwhile shares the next one: the one that runs may have passed their place already.
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
      // Whoever asks from here on is not served by the one that has ended; `#next` has not begun yet.
      if (this.#running === running) this.#running = undefined
    }
  }
}
