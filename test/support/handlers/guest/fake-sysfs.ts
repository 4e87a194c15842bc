import { kernelError } from '../../../../src/os/errors.ts'
import type { FakeOs } from '../../fakes/fake-os.ts'

const CPUS = '/sys/devices/system/cpu'
const MEMORY = '/sys/devices/system/memory'

/** CPUs and memory blocks of a fake machine. As in the kernel, a write to `online` brings one online. */
export class FakeSysfs {
  /** The errno of a failing write, by file. */
  readonly refusals = new Map<string, string>()
  readonly written: string[] = []
  readonly #os: FakeOs
  readonly #online = new Set<number>()

  private constructor(os: FakeOs) {
    this.#os = os
    os.files.onWrite = (path) => this.#written(path)
  }

  /** A machine with one CPU, which is online and cannot be turned off, and room for `possible` CPUs. */
  static async of(os: FakeOs, possible: number): Promise<FakeSysfs> {
    const sysfs = new FakeSysfs(os)
    await os.files.put(`${CPUS}/possible`, `0-${possible - 1}\n`)
    await os.files.makeDirectories(`${CPUS}/cpu0`)
    sysfs.#online.add(0)
    await sysfs.#listCpus()
    return sysfs
  }

  /** Plugs a CPU, which stays offline. */
  async plugCpu(number: number): Promise<void> {
    await this.#os.files.put(`${CPUS}/cpu${number}/online`, '0\n')
    this.written.length = 0
  }

  announce(action: string, path: string, subsystem: string): void {
    this.#os.uevents.send(
      `${action}@${path}\0ACTION=${action}\0DEVPATH=${path}\0SUBSYSTEM=${subsystem}\0SEQNUM=9\0`,
    )
  }

  async plugMemory(number: number): Promise<void> {
    await this.#os.files.put(`${MEMORY}/memory${number}/online`, '0\n')
    this.written.length = 0
  }

  async memoryOnline(number: number): Promise<string> {
    return (await this.#os.files.readText(`${MEMORY}/memory${number}/online`)).trim()
  }

  async #written(path: string): Promise<void> {
    const errno = this.refusals.get(path)
    if (/[0-9]\/online$/.test(path)) this.written.push(path)
    if (errno !== undefined) throw kernelError('write', path, errno)
    const cpu = /\/cpu([0-9]+)\/online$/.exec(path)?.[1]
    if (cpu === undefined || (await this.#os.files.readText(path)).trim() !== '1') return
    this.#online.add(Number(cpu))
    await this.#listCpus()
  }

  async #listCpus(): Promise<void> {
    await this.#os.files.put(`${CPUS}/online`, `${[...this.#online].join(',')}\n`)
  }
}
