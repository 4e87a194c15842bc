import { abortable } from '../../base/abort.ts'
import type { Logger } from '../../base/log.ts'
import type { GuestDetailsRequest, GuestDetailsResponse } from '../../gen/agent.ts'
import type { Os } from '../../os/os.ts'
import { canProbeMemory, memoryBlockSize } from './memory-blocks.ts'
import { runtimeHasSeccomp } from './runtime-features.ts'

/** What is told about the agent, and what it takes to find out the rest. */
export interface DetailsDependencies {
  readonly os: Pick<Os, 'files' | 'tools'>
  readonly log: Logger
  /** The OCI runtime's program. */
  readonly runtime: { readonly binary: string }
  /** True when the agent is in charge of the guest's boot. */
  readonly initMode: boolean
  /** The agent's own version. */
  readonly version: string
  /** Names of the storage drivers that there are. */
  readonly storageHandlers: readonly string[]
  /** Types of devices that there are handlers for. */
  readonly deviceHandlers: readonly string[]
}

/** The call GetGuestDetails (spec C.29); what cannot change while the agent runs is found out once. */
export function guestDetails(
  dependencies: DetailsDependencies,
): (request: GuestDetailsRequest, signal: AbortSignal) => Promise<GuestDetailsResponse> {
  const { os, initMode, version, storageHandlers, deviceHandlers } = dependencies
  let seccomp: Promise<boolean | undefined> | undefined

  return async (request, signal) => {
    // Without a caller's signal: the next caller waits for the same answer.
    seccomp ??= runtimeHasSeccomp(dependencies)
    const supportsSeccomp = await abortable(seccomp, signal)
    // One that did not tell may do so another time: nothing is concluded from its silence.
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
        extraFeatures: [],
      },
    }
  }
}
