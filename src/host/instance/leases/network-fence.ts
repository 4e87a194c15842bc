import { AgentError } from '../../../base/errors.ts'
import type { Clock } from '../../../os/clock.ts'
import type { PacketFilters } from '../filters/nft.ts'
import { tableOf } from '../filters/tap-rules.ts'

/** A tap whose guest sends only while a lease lasts. */
export interface FencedTap {
  /** Its table in nft(8), which has these rules alone. */
  readonly table: string
  readonly interfaceName: string
}

interface FenceContext {
  readonly filters: Pick<PacketFilters, 'run'>
  readonly clock: Pick<Clock, 'boottimeNs'>
}

/** For nft(8), with whose end the kernel's time of an element begins; tried in this order. */
export const NFT_MS = [100, 200, 400, 800] as const

const MS = 1_000_000n
/** The names in the table. */
const LEASED = 'leased'
const CHAIN = 'from-guest'

export function fencedTap(folder: string, backend: string, interfaceName: string): FencedTap {
  return { table: tableOf(folder, `lease of ${backend}`), interfaceName }
}

/** Makes the fence of a tap that is there, closed. What passes it comes to the tap's filters. */
export async function makeFence({ filters }: Pick<FenceContext, 'filters'>, tap: FencedTap): Promise<void> {
  const { table, interfaceName } = tap
  const hook = `type filter hook ingress device "${interfaceName}" priority -1; policy drop;`
  await filters.run(
    [
      ...removal(tap),
      `add table netdev ${table}`,
      `add set netdev ${table} ${LEASED} { type ifname; flags timeout; }`,
      `add chain netdev ${table} ${CHAIN} { ${hook} }`,
      `add rule netdev ${table} ${CHAIN} iifname @${LEASED} accept`,
    ].join('\n'),
  )
}

/** Also of a fence that is not there. */
export async function removeFence(
  { filters }: Pick<FenceContext, 'filters'>,
  tap: Pick<FencedTap, 'table'>,
): Promise<void> {
  await filters.run(removal(tap).join('\n'))
}

function removal({ table }: Pick<FencedTap, 'table'>): readonly string[] {
  return [`add table netdev ${table}`, `delete table netdev ${table}`]
}

/**
 * Opens the fences until a moment of CLOCK_BOOTTIME, when the kernel closes them whatever has become of this process. Rejects with
 * UNAVAILABLE, and has closed them, when nft(8) is too slow to keep that moment.
 */
export async function openFences(
  { filters, clock }: FenceContext,
  taps: readonly FencedTap[],
  untilNs: bigint,
): Promise<void> {
  if (taps.length === 0) return
  const set = (leftMs: number) => filters.run(taps.map((tap) => elementOf(tap, leftMs)).join('\n'))
  for (const ms of NFT_MS) {
    const beganNs = clock.boottimeNs()
    const leftMs = Number((untilNs - beganNs) / MS) - ms
    await set(Math.max(0, leftMs))
    if (leftMs <= 0 || clock.boottimeNs() - beganNs <= BigInt(ms) * MS) return
  }
  await set(0)
  throw new AgentError('UNAVAILABLE', `nft: took more than ${NFT_MS.join(', ')} ms`)
}

/** An element keeps its first timeout when it is only added again. Without one, it would stay for ever. */
function elementOf({ table, interfaceName }: FencedTap, leftMs: number): string {
  const flush = `flush set netdev ${table} ${LEASED}`
  if (leftMs === 0) return flush
  return `${flush}\nadd element netdev ${table} ${LEASED} { "${interfaceName}" timeout ${leftMs}ms }`
}
