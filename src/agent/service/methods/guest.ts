import type { AgentServiceDefinition } from '../../../gen/agent.ts'
import type { GuestContext } from '../../../handlers/guest/context.ts'
import { guestDetails } from '../../../handlers/guest/details.ts'
import { probeMemory } from '../../../handlers/guest/memory-blocks.ts'
import { createMetrics } from '../../../handlers/guest/metrics/metrics.ts'
import { resizeVolume } from '../../../handlers/guest/resize-volume.ts'
import { reseedRandom, setGuestDateTime } from '../../../handlers/guest/seed-and-clock.ts'
import { addSwap, addSwapPath } from '../../../handlers/guest/swap.ts'
import { volumeStats } from '../../../handlers/guest/volume-stats.ts'
import type { Lifecycle } from '../../lifecycle/lifecycle.ts'
import { cancellable, finishing, NO_DISK, type ServiceMethods } from '../rpc.ts'

export function guestMethods(guest: GuestContext, lifecycle: Pick<Lifecycle, 'clockWasSet'>) {
  const { files, system, volumes } = guest.os
  const metrics = createMetrics(guest)
  const devices = { ...guest.os, ...guest.hotplug }
  return {
    getGuestDetails: cancellable('read', (request, { signal }) => guestDetails(guest, request, signal)),
    getMetrics: cancellable('read', async (_request, { signal }) => ({ metrics: await metrics(signal) })),

    // Journaled, because the kernel refuses a block that was probed before.
    memHotplugByProbe: finishing(
      'journaled',
      ({ memHotplugProbeAddr }) => probeMemory(files, memHotplugProbeAddr),
      NO_DISK,
    ),
    // The time to set is the request's plus its age.
    setGuestDateTime: finishing(
      'idempotent',
      async (request, { ageMs }) => {
        guest.events.add({ clockSet: { stepMs: setGuestDateTime(system, request, ageMs()) } })
        void lifecycle.clockWasSet()
      },
      NO_DISK,
    ),
    // The same bytes must not be credited as entropy twice.
    reseedRandomDev: finishing('at-most-once', ({ data }, call) => reseedRandom(system, data, call), NO_DISK),

    addSwap: cancellable('idempotent', ({ PCIPath }, { signal }) => addSwap(devices, PCIPath, signal)),
    addSwapPath: finishing('idempotent', ({ path }) => addSwapPath(devices, path)),
    getVolumeStats: cancellable('read', ({ volumeGuestPath }, { signal }) =>
      volumeStats(volumes, volumeGuestPath, signal),
    ),
    resizeVolume: cancellable('idempotent', (request, { signal }) => resizeVolume(devices, request, signal)),

    memAgentMemcgSet: finishing('idempotent', guest.memAgent.setReclaim, NO_DISK),
    memAgentCompactSet: finishing('idempotent', guest.memAgent.setCompact, NO_DISK),
  } satisfies Partial<ServiceMethods<typeof AgentServiceDefinition>>
}
