import { kernelError } from '../../../../src/os/errors.ts'
import type { Freezer, Thawed } from '../../../../src/os/supervisor/supervisor.ts'

/** Remembers each command, and writes freeze files. The test says when a bound passes. */
export class FakeFreezer implements Freezer {
  readonly commands: string[] = []
  /** Returns the errno of a command, undefined for success. */
  failWith: (command: string) => string | undefined = () => undefined
  /** What `thaw` answers. */
  outcome: Thawed = { late: [], failed: [] }
  /** Called before a command is answered. */
  before: (command: string) => Promise<void> = async () => {}
  #onThawed: () => void = () => {}
  readonly #write: (path: string, data: string) => Promise<void>
  /** Freeze files by their names. */
  readonly #cgroups = new Map<string, string>()

  constructor(write: (path: string, data: string) => Promise<void>) {
    this.#write = write
  }

  onThawed(thawed: () => void): void {
    this.#onThawed = thawed
  }

  async holdFileSystem(name: string, { mountPoint }: { readonly mountPoint: string }): Promise<void> {
    await this.#do(`hold ${name} ${mountPoint}`)
  }

  async holdCgroup(name: string, freezeFile: string): Promise<void> {
    await this.#do(`hold ${name} ${freezeFile}`)
    this.#cgroups.set(name, freezeFile)
  }

  async arm(boundMs: number): Promise<void> {
    await this.#do(`arm ${boundMs}`)
  }

  async freeze(name: string): Promise<void> {
    await this.#do(`freeze ${name}`)
  }

  async freezeCgroup(name: string): Promise<void> {
    await this.#do(`freeze ${name}`)
    const file = this.#cgroups.get(name) ?? ''
    await this.#write(file, file.endsWith('.state') ? 'FROZEN' : '1')
  }

  async thaw(what: 'all' | 'file systems'): Promise<Thawed> {
    await this.#do(`thaw ${what}`)
    if (what === 'all' && this.outcome.late.length === 0) this.#onThawed()
    return this.outcome
  }

  /** vminit thaws by itself. */
  thawed(): void {
    this.#onThawed()
  }

  async #do(command: string): Promise<void> {
    this.commands.push(command)
    await this.before(command)
    const errno = this.failWith(command)
    if (errno !== undefined) throw kernelError(command, 'vminit', errno)
  }
}
