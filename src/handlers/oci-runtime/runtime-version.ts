import { runtimeVersion } from '../../oci/runtime-advisories.ts'
import type { Os } from '../../os/os.ts'

const TIMEOUT_MS = 10_000

export interface RuntimeProgram {
  /** Differs when another file has taken its place. */
  readonly file: string
  /** Rejects when the program reports none. */
  readonly version: Promise<string>
}

/** Asks the OCI runtime for its version: once, and again when its program was replaced. */
export class RuntimeVersion {
  readonly #os: Pick<Os, 'tools' | 'scratch'>
  readonly #binary: string
  #program: RuntimeProgram | undefined

  constructor(os: Pick<Os, 'tools' | 'scratch'>, binary: string) {
    this.#os = os
    this.#binary = binary
  }

  /** undefined when the program is missing. */
  async look(): Promise<RuntimeProgram | undefined> {
    const status = await this.#os.scratch.stat(this.#binary)
    if (status === undefined) return undefined
    const file = [status.device, status.inode, status.changedNs].join(' ')
    if (this.#program?.file === file) return this.#program
    const program = { file, version: this.#ask() }
    this.#program = program
    // Ask again next time: the program may only have been slow.
    program.version.catch(() => {
      if (this.#program === program) this.#program = undefined
    })
    return program
  }

  async #ask(): Promise<string> {
    const { stdout } = await this.#os.tools.run([this.#binary, '--version'], { timeoutMs: TIMEOUT_MS })
    return runtimeVersion(stdout)
  }
}
