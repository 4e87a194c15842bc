import { propertyOf } from '../../base/property-of.ts'
import type { Os } from '../../os/os.ts'
import type { RuntimeOptions } from './run.ts'

const TIMEOUT_MS = 10_000

/** The flags of crun, whose `features` command lists none. */
const CRUN_FLAGS = ['TSYNC', 'SPEC_ALLOW', 'LOG'].map((name) => `SECCOMP_FILTER_FLAG_${name}`)

/** The flags that the runtime's `features` command lists (OCI runtime specification, features.md). */
export async function seccompFlags(
  { tools }: Pick<Os, 'tools'>,
  { kind, binary }: RuntimeOptions,
): Promise<ReadonlySet<string>> {
  if (kind === 'crun') return new Set(CRUN_FLAGS)
  const features = await tools.run([binary, 'features'], { timeoutMs: TIMEOUT_MS })
  if (features.exitCode !== 0) return new Set()
  const document: unknown = JSON.parse(features.stdout)
  const listed = propertyOf(propertyOf(propertyOf(document, 'linux'), 'seccomp'), 'supportedFlags')
  return new Set(Array.isArray(listed) ? listed.filter((flag) => typeof flag === 'string') : [])
}
