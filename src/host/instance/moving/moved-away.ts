import { AgentError } from '../../../base/errors.ts'
import type { Moved } from '../../../gen/microvm/instance/v1/instance.ts'
import { MovedRecord } from '../../../gen/microvm/instance/v1/records.ts'
import type { Caller } from '../instances.ts'
import type { Change, Registry } from '../registry/registry.ts'

/** There was such an instance, whose machine runs on another host now. */
export class MovedAway extends AgentError {
  readonly moved: Moved
  /** As in its record. */
  readonly cameFrom: readonly string[]
  /** Its owner. */
  readonly tenant: string

  constructor(key: string, { cameFrom, moved, tenant }: MovedRecord & { readonly moved: Moved }) {
    const place = moved.host === '' ? 'another host' : `host ${moved.host} at ${moved.endpoint}`
    super('NOT_FOUND', `instance ${key}: not found: its machine runs on ${place}`, { reason: 'moved' })
    this.moved = moved
    this.cameFrom = cameFrom
    this.tenant = tenant
  }
}

/** Callers have so long, and so many machines, to learn where theirs have gone. */
const KEPT_MS = 30n * 24n * 3_600_000n
const MOST_KEPT = 1000

/** What a machine that has moved leaves in the registry, in place of the oldest that others have left. */
export async function movedRows(
  registry: Pick<Registry, 'load'>,
  record: MovedRecord,
): Promise<readonly Change[]> {
  const key = rowOf(record.key)
  const { timeMs = 0n } = record.moved ?? {}
  const others = [...(await registry.load('settings'))]
    .filter(([row]) => row.startsWith(MOVED) && row !== key)
    .map(([row, payload]) => ({ row, timeMs: MovedRecord.decode(payload).moved?.timeMs ?? 0n }))
    .sort((a, b) => Number(b.timeMs - a.timeMs))
  const old = others.filter((other, index) => index >= MOST_KEPT - 1 || other.timeMs < timeMs - KEPT_MS)
  return [
    { table: 'settings', key, payload: MovedRecord.encode(record).finish() },
    ...old.map(({ row }) => ({ table: 'settings', key: row, payload: undefined }) as const),
  ]
}

const MOVED = 'moved/'

function rowOf(key: string): string {
  return `${MOVED}${key}`
}

/** For a machine that has come back. */
export function forgetMoved(key: string): Change {
  return { table: 'settings', key: rowOf(key), payload: undefined }
}

/** Undefined where no instance of the caller has moved away. */
export async function movedAway(
  registry: Pick<Registry, 'load'>,
  key: string,
  { tenant }: Pick<Caller, 'tenant'>,
): Promise<MovedAway | undefined> {
  const row = (await registry.load('settings')).get(rowOf(key))
  if (row === undefined) return undefined
  const { moved, ...rest } = MovedRecord.decode(row)
  if (moved === undefined || (tenant !== undefined && tenant !== rest.tenant)) return undefined
  return new MovedAway(key, { ...rest, moved })
}

/**
 * The hosts that have handed a machine of the tenant to this one, now that `from` does: those of an earlier stay still send its callers
 * here.
 */
export async function hostsBefore(
  registry: Pick<Registry, 'load'>,
  key: string,
  { from, tenant }: { readonly from: string; readonly tenant: string },
): Promise<string[]> {
  const { cameFrom = [] } = (await movedAway(registry, key, { tenant })) ?? {}
  return [...cameFrom.filter((host) => host !== from), from].slice(-MOST_HOSTS)
}

/** How many hosts may pass a caller on, one after the other, and how many are known that may do so. */
export const MOST_HOSTS = 16
