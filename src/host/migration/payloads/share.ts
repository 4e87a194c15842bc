import type { Any } from '../../../gen/google/protobuf/any.ts'
import { type Mount, Payload, type Reservation, type Share } from '../../../gen/state/host/share.ts'
import { kind, pack, unpack } from './kind.ts'
import { keysOf, type MachineFacts, plugStage } from './machine-facts.ts'
import { stageOf } from './stages.ts'

const KIND = kind('share', 1, Payload)

/** Types of file systems whose source is the tag of a share, and the drivers of such storages. */
const TYPES: readonly string[] = ['virtiofs', '9p']
const DRIVERS: readonly string[] = ['virtio-fs', '9p']

/** The storages of the guest that shares provide, by their mount points. */
export function shareReservations(facts: MachineFacts): Record<string, Reservation> {
  const byTag = keysByTag(facts)
  const storages = facts.guest?.mounts.storages ?? []
  const reservations = storages.flatMap(({ driver, source, state, mountPoint, references, shared }) => {
    const share = DRIVERS.includes(driver) ? byTag.get(source) : undefined
    if (share === undefined) return []
    return [[mountPoint, { stage: stageOf('storage', state), share, references, shared }] as const]
  })
  return Object.fromEntries(reservations)
}

function keysByTag({ record: { specification } }: MachineFacts): ReadonlyMap<string, string> {
  const entries = Object.entries(specification?.devices ?? {})
  return new Map(entries.flatMap(([key, { share }]) => (share === undefined ? [] : [[share.tag, key]])))
}

export function saveShares(facts: MachineFacts, reservations: Record<string, Reservation>): Any {
  const { mounts = [] } = facts.guest?.mounts ?? {}
  const byTag = keysByTag(facts)
  const shares = keysOf(facts, ({ share }) => share !== undefined).map((key): [string, Share] => {
    const mounted = mounts.flatMap(({ source, mountPoint, type, readOnly }): Mount[] =>
      TYPES.includes(type) && byTag.get(source) === key ? [{ mountPoint, type, readOnly }] : [],
    )
    return [key, { ...plugStage(facts, key), mounts: mounted }]
  })
  return pack(KIND, { shares: Object.fromEntries(shares), reservations })
}

export function restoreShares(any: Any | undefined, where: string): Payload {
  return unpack(KIND, any, where)
}
