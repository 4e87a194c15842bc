import { propertyOf } from '../../base/property-of.ts'
import { runtimeVersion } from '../../oci/runtime-advisories.ts'
import type { Os } from '../../os/os.ts'

const TIMEOUT_MS = 10_000

/** What a program of the OCI runtime tells of itself. An answer is kept; a call that gets none rejects, and the next asks again. */
export interface RuntimeProgram {
  /** Differs when another file has taken its place. */
  readonly file: string
  /** Rejects when the program reports none. */
  version(): Promise<string>
  supportsSeccomp(): Promise<boolean>
  /** The flags of seccomp that its `features` lists; crun lists none. */
  seccompFlags(): Promise<ReadonlySet<string>>
}

/** Finds the program of the OCI runtime, and another one that has taken its place. */
export class RuntimeFile {
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
    if (this.#program?.file !== file) this.#program = runtimeProgram(this.#os, this.#binary, file)
    return this.#program
  }
}

function runtimeProgram({ tools }: Pick<Os, 'tools'>, binary: string, file: string): RuntimeProgram {
  const run = (command: string) => tools.run([binary, command], { timeoutMs: TIMEOUT_MS })
  const about = untilAnswered(async () => {
    const { exitCode, stdout } = await run('--version')
    if (exitCode !== 0) throw new Error(`--version: exit code ${exitCode}`)
    return stdout
  })
  /** `linux.seccomp` of the "Features Structure" in the OCI runtime specification; undefined without that command. */
  const seccomp = untilAnswered(async () => {
    const { exitCode, stdout } = await run('features')
    return exitCode === 0 ? propertyOf(propertyOf(JSON.parse(stdout), 'linux'), 'seccomp') : undefined
  })
  return {
    file,
    version: async () => runtimeVersion(await about()),
    // The version comes first, for the agent needs it anyway, and `features` takes as long as a container's start.
    supportsSeccomp: async () =>
      /\+SECCOMP|libseccomp:/.test(await about()) || propertyOf(await seccomp(), 'enabled') === true,
    seccompFlags: async () => {
      const listed = propertyOf(await seccomp(), 'supportedFlags')
      return new Set(Array.isArray(listed) ? listed.filter((flag) => typeof flag === 'string') : [])
    },
  }
}

/** Keeps an answer, and no failure. */
function untilAnswered<T>(ask: () => Promise<T>): () => Promise<T> {
  let answer: Promise<T> | undefined
  const failed = (error: unknown) => {
    answer = undefined
    throw error
  }
  return () => {
    answer ??= ask().catch(failed)
    return answer
  }
}
