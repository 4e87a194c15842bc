import { AgentError } from '../../../base/errors.ts'
import type { PacketFilters } from '../filters/nft.ts'
import type { Holder } from '../holder/holder.ts'
import type { MachineLease } from './machine-lease.ts'
import { fencedTap, removeFence } from './network-fence.ts'
import type { Bridge, Volumes } from './volumes.ts'

interface LeaseContext {
  readonly folder: string
  readonly filters: PacketFilters
  readonly holder: Holder | undefined
  readonly lease?: MachineLease | undefined
  readonly volumes?: Volumes | undefined
  readonly ending: () => AbortSignal
}

interface Words {
  readonly words: readonly string[]
}

/** Lets a tap's guest send only while its lease lasts: words are its backend's key, a table and the interface. */
export const FENCE_STEP = {
  make: async ({ folder, lease }: LeaseContext, { words: [key = '', , interfaceName = ''] }: Words) =>
    await present(lease).fence(fencedTap(folder, key, interfaceName)),
  // A copied state folder has the table of the original.
  undo: async ({ filters, folder, lease }: LeaseContext, [key = '', table = '']: readonly string[]) => {
    if (table !== fencedTap(folder, key, '').table) return
    lease?.unfence(table)
    await removeFence({ filters }, { table })
  },
}

/** A first grant, with whose end the holder ends the machine. Words are an empty one. */
export const LEASE_STEP = {
  make: async ({ ending, holder, lease }: LeaseContext) =>
    await present(lease).acquire(present(holder), ending()),
  undo: async ({ lease }: LeaseContext) => lease?.close(),
}

interface VolumeWords extends Words {
  readonly bridge?: Bridge<object>
}

/** What is fenced off is served here: by the daemon of a volume, or by one of the machine where another host has the file. */
export function volumeStep<
  Context extends LeaseContext,
  Planned extends VolumeWords,
  Record extends { readonly uid: number },
>(
  daemon: () => {
    readonly make: (context: Context, planned: Planned, record: Record) => Promise<void>
    readonly undo: (context: Context, words: readonly string[]) => Promise<void>
  },
) {
  return {
    make: async (context: Context, planned: Planned, record: Record): Promise<void> => {
      const { ending, lease, volumes } = context
      const { bridge, words } = planned
      const [key = '', , socket = ''] = words
      if (bridge === undefined || bridge.host === volumes?.id) {
        await present(volumes).fence(present(lease).us, key, { socket, uid: record.uid }, ending())
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
