import { messageOf } from '../../base/errors.ts'
import { openAdvisories } from '../../oci/runtime-advisories.ts'
import type { Os } from '../../os/os.ts'
import type { RuntimeOptions } from './run.ts'
import { RuntimeVersion } from './runtime-version.ts'

export class KnownHoles {
  readonly #options: Pick<RuntimeOptions, 'kind' | 'binary' | 'log'>
  readonly version: RuntimeVersion
  #seen: string | undefined

  constructor(os: Pick<Os, 'tools' | 'scratch'>, options: Pick<RuntimeOptions, 'kind' | 'binary' | 'log'>) {
    this.#options = options
    this.version = new RuntimeVersion(os, options.binary)
  }

  /** Warns once per runtime program if it has known holes or reports no version. Never rejects. */
  async look(): Promise<void> {
    const { kind, binary: runtime, log } = this.#options
    try {
      const program = await this.version.look()
      if (this.#seen === (program?.file ?? '')) return
      this.#seen = program?.file ?? ''
      if (program === undefined) return log.warn('OCI runtime missing', { runtime })
      const version = await program.version
      const open = openAdvisories(kind, version)
      if (open.length === 0) return
      const advisories = open.map(({ id }) => id).join(' ')
      log.warn('runtime has known break-outs', { runtime, runtimeVersion: version, advisories })
    } catch (error) {
      log.warn('version of the runtime unknown', { runtime, error: messageOf(error) })
    }
  }
}
