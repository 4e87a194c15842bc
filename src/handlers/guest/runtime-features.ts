import { messageOf } from '../../base/errors.ts'
import type { Logger } from '../../base/log.ts'
import { propertyOf } from '../../base/property-of.ts'
import type { Os } from '../../os/os.ts'

const TIMEOUT_MS = 10_000

/** Asks `features`, or `--version` when the runtime lacks that command. undefined, with a log line, when it fails. */
export async function runtimeHasSeccomp({
  os,
  log,
  runtime,
}: {
  readonly os: Pick<Os, 'tools'>
  readonly log: Logger
  readonly runtime: { readonly binary: string }
}): Promise<boolean | undefined> {
  try {
    const features = await os.tools.run([runtime.binary, 'features'], { timeoutMs: TIMEOUT_MS })
    if (features.exitCode === 0) return seccompOfFeatures(features.stdout)
    const version = await os.tools.run([runtime.binary, '--version'], { timeoutMs: TIMEOUT_MS })
    if (version.exitCode !== 0) throw new Error(`--version: exit code ${version.exitCode}`)
    return /\+SECCOMP|libseccomp:/.test(version.stdout)
  } catch (error) {
    log.warn('features of the runtime unknown', { runtime: runtime.binary, error: messageOf(error) })
    return undefined
  }
}

/** `linux.seccomp.enabled` (OCI runtime specification, features.md). */
function seccompOfFeatures(json: string): boolean {
  const document: unknown = JSON.parse(json)
  return propertyOf(propertyOf(propertyOf(document, 'linux'), 'seccomp'), 'enabled') === true
}
