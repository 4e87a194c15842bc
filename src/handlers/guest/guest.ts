import type { GuestDetailsRequest, GuestDetailsResponse, MemHotplugByProbeRequest } from '../../gen/agent.ts'
import { type DetailsDependencies, guestDetails } from './details.ts'
import { probeMemory } from './memory-blocks.ts'

/** Calls about the guest itself. Each throws what `signal` is aborted with while it waits. */
export interface GuestHandlers {
  /** GetGuestDetails (spec C.29). Throws INTERNAL when the kernel's memory block size cannot be read. */
  details(request: GuestDetailsRequest, signal: AbortSignal): Promise<GuestDetailsResponse>
  /** MemHotplugByProbe (spec C.30). */
  memHotplugByProbe(request: MemHotplugByProbeRequest, signal: AbortSignal): Promise<void>
}

/** Builds the calls. */
export function createGuestHandlers(dependencies: DetailsDependencies): GuestHandlers {
  const { os } = dependencies
  return {
    details: guestDetails(dependencies),
    memHotplugByProbe: ({ memHotplugProbeAddr }) => probeMemory(os.files, memHotplugProbeAddr),
  }
}
