import { type IdentityParts, takeIdentity } from '../../../src/agent/lifecycle/identity.ts'
import { Lifecycle, type LifecycleParts } from '../../../src/agent/lifecycle/lifecycle.ts'
import { networkQueues } from '../../../src/handlers/network/context.ts'
import { NetworkRecord } from '../../../src/handlers/network/network-record.ts'
import { EventLog } from '../../../src/state/event-log.ts'
import { StateStore } from '../../../src/state/state-store.ts'
import { FakeOs } from '../fakes/fake-os.ts'
import { MemoryStateFiles } from '../fakes/files/memory-state-files.ts'
import { recordingLog } from '../fakes/recording-log.ts'
import { hotplugOf } from '../handlers/device/device-dependencies.ts'
import { silentCalls } from './calls-in-flight.ts'

/** 2023-11-14, when the guest's clock is right at first. */
export const GUEST_MS = 1_700_000_000_000

/** An agent in a guest that may be restored. `next` is the one that follows when it dies. */
export async function restoredGuest(
  options: {
    readonly state?: MemoryStateFiles
    readonly isFirst?: boolean
    /** False for an agent that dies before it serves calls. */
    readonly isServing?: boolean
    readonly os?: FakeOs
    /** Before one that is not the first reads the kernel's log. */
    readonly logMs?: number
    readonly parts?: Partial<LifecycleParts>
  } = {},
) {
  const { os = new FakeOs(), state = new MemoryStateFiles() } = options
  const { log, lines } = recordingLog()
  await os.files.put('/proc/sys/kernel/hostname', 'first\n')
  await os.files.put('/etc/hosts', '127.0.0.1 localhost\n10.0.0.2 first first.pod # first\n')
  await os.files.put('/etc/resolv.conf', 'nameserver 10.0.0.1\n')
  const store = new StateStore(state)
  // The clock of the machine: it goes on with the guest, and moves when it is set.
  const began = os.clock.monotonicMs()
  const unixMs = () =>
    os.system.timeUs === undefined
      ? GUEST_MS + os.clock.monotonicMs() - began
      : Number(os.system.timeUs / 1000n)
  const events = new EventLog(store, { boottimeNs: () => os.clock.boottimeNs(), unixMs })
  const frozen: string[] = []
  const dropped: string[] = []
  const streams: string[] = []
  const network = {
    ...{ os, log, hotplug: hotplugOf(os), queues: networkQueues() },
    record: new NetworkRecord(log),
  }
  const sandbox: IdentityParts['sandbox']['sandboxState']['view']['sandbox'] = undefined
  const lifecycle = new Lifecycle({
    ...{ os, state: store, events, log, unixMs, isInit: true, isFirst: options.isFirst ?? true },
    calls: silentCalls(),
    streams: {
      detach: async () => [],
      totals: () => [],
      attach: async (moved) => void streams.push(`attach ${moved.length}`),
      dialAgain: async () => void streams.push('dial again'),
    },
    frozen: {
      resumed: async ({ holdsContainers }) => void frozen.push(holdsContainers ? 'held' : 'thawed'),
      ready: async () => void frozen.push('ready'),
    },
    takeIdentity: (identity, signal) =>
      takeIdentity(
        {
          os,
          network,
          sandbox: { sandboxState: { view: { name: 'none', sandbox } } } as never,
          folder: '/own',
        },
        identity,
        signal,
      ),
    ...options.parts,
  })
  await lifecycle.restore()
  const dropOlder = (than: string) => {
    dropped.push(than)
    return 1
  }
  if (options.isServing !== false) lifecycle.begin({ dropOlder }, options.logMs ?? 0)
  // For the timers that are due.
  os.clock.advance(0)
  return { lifecycle, os, state, events, lines, frozen, dropped, streams, unixMs }
}

export type RestoredGuest = Awaited<ReturnType<typeof restoredGuest>>
