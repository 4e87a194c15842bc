import { messageOf } from '../../base/errors.ts'
import { openAdvisories, runtimeVersion } from '../../oci/runtime-advisories.ts'
import type { Os } from '../../os/os.ts'
import type { RuntimeOptions } from './run.ts'

const TIMEOUT_MS = 10_000

/** Warns of an OCI runtime that containers can break out of in known ways. */
export class KnownHoles {
  readonly #os: Pick<Os, 'tools' | 'files'>
  readonly #options: Pick<RuntimeOptions, 'kind' | 'binary' | 'log'>
  #seen: string | undefined

  constructor(os: Pick<Os, 'tools' | 'files'>, options: Pick<RuntimeOptions, 'kind' | 'binary' | 'log'>) {
    this.#os = os
    this.#options = options
  }

  /** Logs one warning for each program that takes the runtime's place, if it has known holes or tells no version. Never rejects. */
  async look(): Promise<void> {
    const { kind, binary: runtime, log } = this.#options
    try {
      const status = await this.#os.files.stat(runtime)
      const found = status === undefined ? '' : [status.device, status.inode, status.changedNs].join(' ')
      if (found === this.#seen) return
      this.#seen = found
      if (status === undefined) return log.warn('the OCI runtime is missing', { runtime })
      const { stdout } = await this.#os.tools.run([runtime, '--version'], { timeoutMs: TIMEOUT_MS })
      const version = runtimeVersion(stdout)
      const open = openAdvisories(kind, version)
      if (open.length === 0) return
      const advisories = open.map(({ id }) => id).join(' ')
      log.warn('containers can break out of this runtime', { runtime, runtimeVersion: version, advisories })
    } catch (error) {
      log.warn('version of the runtime unknown', { runtime, error: messageOf(error) })
    }
  }
}
