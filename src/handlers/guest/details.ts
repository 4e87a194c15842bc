import { abortable } from '../../base/abort.ts'
import { messageOf } from '../../base/errors.ts'
import type { Logger } from '../../base/log.ts'
import { propertyOf } from '../../base/property-of.ts'
import type { GuestDetailsRequest, GuestDetailsResponse } from '../../gen/agent.ts'
import type { Os } from '../../os/os.ts'
import { canProbeMemory, memoryBlockSize } from './memory-blocks.ts'

export interface DetailsContext {
  readonly os: Pick<Os, 'files' | 'tools'>
  readonly log: Logger
  readonly runtime: { readonly binary: string }
  /** True when the agent is in charge of the guest's boot. */
  readonly initMode: boolean
  readonly version: string
  readonly storageHandlers: readonly string[]
  readonly deviceHandlers: readonly string[]
  readonly supportsPolicy: () => boolean
}

/** Creates the call GetGuestDetails, which asks the runtime for its features only once. */
export function guestDetails(
  dependencies: DetailsContext,
): (request: GuestDetailsRequest, signal: AbortSignal) => Promise<GuestDetailsResponse> {
  const { os, initMode, version, storageHandlers, deviceHandlers, supportsPolicy } = dependencies
  let seccomp: Promise<boolean | undefined> | undefined

  return async (request, signal) => {
    // Not bound to this call's signal, because other callers wait for the same answer.
    seccomp ??= runtimeHasSeccomp(dependencies)
    const supportsSeccomp = await abortable(seccomp, signal)
    // The runtime gave no answer; the next call asks again.
    if (supportsSeccomp === undefined) seccomp = undefined
    return {
      memBlockSizeBytes: request.memBlockSize ? await memoryBlockSize(os.files) : 0n,
      supportMemHotplugProbe: request.memHotplugProbe && (await canProbeMemory(os.files)),
      agentDetails: {
        version,
        initDaemon: initMode,
        deviceHandlers: deviceHandlers.toSorted(),
        storageHandlers: storageHandlers.toSorted(),
        supportsSeccomp: supportsSeccomp ?? false,
        extraFeatures: [
          ...(supportsPolicy() ? ['agent-policy'] : []),
          ...(supportsSeccomp ? ['seccomp'] : []),
        ],
      },
    }
  }
}

const TIMEOUT_MS = 10_000

/** Asks `features`, or `--version` when the runtime lacks that command. undefined, with a log line, when it fails. */
async function runtimeHasSeccomp({
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

/** `linux.seccomp.enabled` (OCI runtime specification, "Features Structure"). */
function seccompOfFeatures(json: string): boolean {
  const document: unknown = JSON.parse(json)
  return propertyOf(propertyOf(propertyOf(document, 'linux'), 'seccomp'), 'enabled') === true
}
