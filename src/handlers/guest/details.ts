import { abortable } from '../../base/abort.ts'
import type { GuestDetailsRequest, GuestDetailsResponse } from '../../gen/agent.ts'
import type { Os } from '../../os/os.ts'
import { canProbeMemory, memoryBlockSize } from './memory-blocks.ts'

export interface DetailsContext {
  readonly os: Pick<Os, 'files'>
  /** True when the agent is in charge of the guest's boot. */
  readonly initMode: boolean
  readonly version: string
  readonly storageHandlers: readonly string[]
  readonly deviceHandlers: readonly string[]
  readonly supportsPolicy: () => boolean
  readonly supportsSeccomp: () => Promise<boolean>
}

export async function guestDetails(
  context: DetailsContext,
  request: GuestDetailsRequest,
  signal: AbortSignal,
): Promise<GuestDetailsResponse> {
  const { os, initMode, version, storageHandlers, deviceHandlers, supportsPolicy } = context
  const supportsSeccomp = await abortable(context.supportsSeccomp(), signal)
  return {
    memBlockSizeBytes: request.memBlockSize ? await memoryBlockSize(os.files) : 0n,
    supportMemHotplugProbe: request.memHotplugProbe && (await canProbeMemory(os.files)),
    agentDetails: {
      version,
      initDaemon: initMode,
      deviceHandlers: deviceHandlers.toSorted(),
      storageHandlers: storageHandlers.toSorted(),
      supportsSeccomp,
      extraFeatures: [...(supportsPolicy() ? ['agent-policy'] : []), ...(supportsSeccomp ? ['seccomp'] : [])],
    },
  }
}
