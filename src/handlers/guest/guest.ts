import type {
  AddSwapPathRequest,
  AddSwapRequest,
  GetMetricsRequest,
  GuestDetailsRequest,
  GuestDetailsResponse,
  MemHotplugByProbeRequest,
  Metrics,
  ReseedRandomDevRequest,
  ResizeVolumeRequest,
  SetGuestDateTimeRequest,
  VolumeStatsRequest,
} from '../../gen/agent.ts'
import type { VolumeStatsResponse } from '../../gen/csi.ts'
import type { HotplugDependencies } from '../../hotplug/wait-for-device.ts'
import type { Os } from '../../os/os.ts'
import { type DetailsDependencies, guestDetails } from './details.ts'
import { probeMemory } from './memory-blocks.ts'
import { createMetrics } from './metrics/metrics.ts'
import { resizeVolume } from './resize-volume.ts'
import { reseedRandom, setGuestDateTime } from './seed-and-clock.ts'
import { addSwap, addSwapPath } from './swap.ts'
import { volumeStats } from './volume-stats.ts'

/** What the calls about the guest itself work with. */
export interface GuestDependencies extends DetailsDependencies {
  readonly os: Os
  /** What waiting for devices needs. */
  readonly hotplug: HotplugDependencies
}

/** Calls about the guest itself. Each throws what `signal` is aborted with while it waits. */
export interface GuestHandlers {
  /** GetGuestDetails (spec C.29). Throws INTERNAL when the kernel's memory block size cannot be read. */
  details(request: GuestDetailsRequest, signal: AbortSignal): Promise<GuestDetailsResponse>
  /** MemHotplugByProbe (spec C.30): see {@link probeMemory}. */
  memHotplugByProbe(request: MemHotplugByProbeRequest, signal: AbortSignal): Promise<void>
  /** SetGuestDateTime (spec C.31): see {@link setGuestDateTime}. */
  setDateTime(request: SetGuestDateTimeRequest, signal: AbortSignal): Promise<void>
  /** ReseedRandomDev (spec C.28): see {@link reseedRandom}. */
  reseedRandom(request: ReseedRandomDevRequest, signal: AbortSignal): Promise<void>
  /** GetMetrics (spec C.24): see {@link createMetrics}. */
  metrics(request: GetMetricsRequest, signal: AbortSignal): Promise<Metrics>
  /** AddSwap (spec C.34): see {@link addSwap}. */
  addSwap(request: AddSwapRequest, signal: AbortSignal): Promise<void>
  /** AddSwapPath (spec C.34): see {@link addSwapPath}. */
  addSwapPath(request: AddSwapPathRequest, signal: AbortSignal): Promise<void>
  /** GetVolumeStats (spec C.35): see {@link volumeStats}. */
  volumeStats(request: VolumeStatsRequest, signal: AbortSignal): Promise<VolumeStatsResponse>
  /** ResizeVolume (spec C.36): see {@link resizeVolume}. */
  resizeVolume(request: ResizeVolumeRequest, signal: AbortSignal): Promise<void>
}

/** Builds the calls. */
export function createGuestHandlers(dependencies: GuestDependencies): GuestHandlers {
  const { os } = dependencies
  const metrics = createMetrics(dependencies)
  const waiting = { ...os, ...dependencies.hotplug }
  return {
    details: guestDetails(dependencies),
    memHotplugByProbe: ({ memHotplugProbeAddr }) => probeMemory(os.files, memHotplugProbeAddr),
    setDateTime: async ({ Sec, Usec }) => setGuestDateTime(os.system, Sec, Usec),
    reseedRandom: ({ data }) => reseedRandom(os.system, data),
    metrics: async (_request, signal) => ({ metrics: await metrics(signal) }),
    addSwap: ({ PCIPath }, signal) => addSwap(waiting, PCIPath, signal),
    addSwapPath: ({ path }) => addSwapPath(waiting, path),
    volumeStats: ({ volumeGuestPath }, signal) => volumeStats(os.volumes, volumeGuestPath, signal),
    resizeVolume: (request, signal) => resizeVolume(waiting, request, signal),
  }
}
