import { AgentError } from '../../../base/errors.ts'
import type { PacketFilters } from '../filters/nft.ts'
import type { Holder } from '../holder/holder.ts'
import type { MachineLease } from './machine-lease.ts'
import { fencedTap, removeFence } from './network-fence.ts'
import type { Server, Volumes } from './volumes.ts'

interface LeaseContext {
  readonly folder: string
  readonly filters: PacketFilters
  readonly holder: Holder | undefined
  readonly lease?: MachineLease | undefined
  readonly volumes?: Volumes | undefined
  readonly ending: () => AbortSignal
}

interface Planned {
  readonly words: readonly string[]
  readonly awaitsLease?: true
}

/** Steps of a machine with LM_FULL_LEASES. One that comes from another host makes them again once it is to run here. */
export const STEPS_OF_LEASE: readonly string[] = ['lease', 'volume', 'fence']

/** Lets a tap's guest send only while its lease lasts: words are its backend's key, a table and the interface. */
export const FENCE_STEP = {
  make: async (
    { folder, lease }: LeaseContext,
    { awaitsLease, words: [key = '', , interfaceName = ''] }: Planned,
  ) => {
    if (!awaitsLease) await present(lease).fence(fencedTap(folder, key, interfaceName))
  },
  // A copied state folder has the table of the original.
  undo: async ({ filters, folder, lease }: LeaseContext, [key = '', table = '']: readonly string[]) => {
    if (table !== fencedTap(folder, key, '').table) return
    lease?.unfence(table)
    await removeFence({ filters }, { table })
  },
}

/** A first grant, with whose end the holder ends the machine. Words are an empty one. */
export const LEASE_STEP = {
  make: async ({ ending, holder, lease }: LeaseContext, { awaitsLease }: Planned) => {
    if (!awaitsLease) await present(lease).acquire(present(holder), ending())
  },
  undo: async ({ lease }: LeaseContext) => lease?.close(),
}

interface PlannedVolume extends Planned {
  readonly server?: Server<object>
}

/** What is fenced off is served here: by the daemon of a volume, or by one of the machine where another host has the file. */
export function volumeStep<
  Context extends LeaseContext,
  Volume extends PlannedVolume,
  Record extends { readonly uid: number },
>(
  daemon: () => {
    readonly make: (context: Context, planned: Volume, record: Record) => Promise<void>
    readonly undo: (context: Context, words: readonly string[]) => Promise<void>
  },
) {
  return {
    make: async (context: Context, planned: Volume, record: Record): Promise<void> => {
      const { ending, holder, lease, volumes } = context
      const { awaitsLease, server, words } = planned
      const [key = '', name = '', socket = ''] = words
      const { bridge, standIn } = present(server)
      const writer = { socket, uid: record.uid }
      const { us } = present(lease)
      const isHere = bridge === undefined || bridge.host === volumes?.id
      if (awaitsLease) {
        const sizeBytes = isHere
          ? await present(volumes).look(us, key, writer)
          : await present(lease).lookAtVolume(bridge.host, key, ending())
        await daemon().make(context, { ...planned, ...standIn(sizeBytes) }, record)
        return
      }
      await daemon().undo(context, words)
      // QEMU connects again only once what it was connected to has ended.
      const children = (await holder?.children()) ?? []
      if (children.some((child) => child.name === name && child.exit === undefined))
        throw new AgentError('UNAVAILABLE', `volume ${key}: what has served it does not end`)
      if (isHere) {
        await present(volumes).fence(us, key, writer, ending())
        return
      }
      const reach = await present(lease).fenceVolume(bridge.host, key, ending())
      await daemon().make(context, { ...planned, ...bridge.to(reach) }, record)
    },
    undo: async (context: Context, words: readonly string[]): Promise<void> => {
      await daemon().undo(context, words)
      await context.volumes?.release(words[2] ?? '')
    },
  }
}

function present<T>(value: T | undefined): T {
  if (value !== undefined) return value
  throw new AgentError('INTERNAL', 'a step of a lease without it, or without a holder')
}
