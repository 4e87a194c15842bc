import { abortable } from '../../base/abort.ts'
import type { Logger } from '../../base/log.ts'
import type { GuestDetailsRequest, GuestDetailsResponse } from '../../gen/agent.ts'
import type { Os } from '../../os/os.ts'
import { canProbeMemory, memoryBlockSize } from './memory-blocks.ts'
import { runtimeHasSeccomp } from './runtime-features.ts'

export interface DetailsDependencies {
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
  dependencies: DetailsDependencies,
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
