import { messageOf } from '../../base/errors.ts'
import type { Logger } from '../../base/log.ts'
import { openAdvisories } from '../../oci/runtime-advisories.ts'
import type { Os } from '../../os/os.ts'
import type { RuntimeOptions } from './run.ts'

const TIMEOUT_MS = 10_000

/** Logs one warning when the guest's runtime is of a version with known ways out of a container, or tells none. */
export async function warnOfKnownHoles(
  os: Pick<Os, 'tools'>,
  log: Logger,
  { kind, binary: runtime }: Pick<RuntimeOptions, 'kind' | 'binary'>,
): Promise<void> {
  try {
    const { stdout } = await os.tools.run([runtime, '--version'], { timeoutMs: TIMEOUT_MS })
    const version = runtimeVersion(stdout)
    const open = openAdvisories(kind, version)
    if (open.length === 0) return
    const advisories = open.map(({ id }) => id).join(' ')
    log.warn('containers can break out of this runtime', { runtime, runtimeVersion: version, advisories })
  } catch (error) {
    log.warn('version of the runtime unknown', { runtime, error: messageOf(error) })
  }
}

/** The version in the output of `--version`. Debian's builds have that of their package in the place of the commit. */
function runtimeVersion(output: string): string {
  const [, ofPackage] = /^commit: (\d+\.\d\S*-\S+)$/m.exec(output) ?? []
  const [, ofProgram = ''] = /^\w+ version (\S+)$/m.exec(output) ?? []
  return ofPackage ?? ofProgram
}
