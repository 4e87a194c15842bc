import { AgentError } from '../../../base/errors.ts'
import type { Moved } from '../../../gen/microvm/instance/v1/instance.ts'
import { MovedRecord } from '../../../gen/microvm/instance/v1/records.ts'
import type { Caller } from '../instances.ts'
import type { Change, Registry } from '../registry/registry.ts'

/** There was such an instance, whose machine runs on another host now. */
export class MovedAway extends AgentError {
  readonly moved: Moved

  constructor(key: string, moved: Moved) {
    const place = moved.host === '' ? 'another host' : `host ${moved.host} at ${moved.endpoint}`
    super('NOT_FOUND', `instance ${key}: not found: its machine runs on ${place}`)
    this.moved = moved
  }
}

/** What a machine that has moved leaves in the registry. */
export function movedRow(record: MovedRecord): Change {
  return { table: 'settings', key: rowOf(record.key), payload: MovedRecord.encode(record).finish() }
}

function rowOf(key: string): string {
  return `moved/${key}`
}

/** Undefined where no instance of the caller has moved away. */
export async function movedAway(
  registry: Pick<Registry, 'load'>,
  key: string,
  { tenant }: Pick<Caller, 'tenant'>,
): Promise<MovedAway | undefined> {
  const row = (await registry.load('settings')).get(rowOf(key))
  if (row === undefined) return undefined
  const { moved, tenant: owner } = MovedRecord.decode(row)
  if (moved === undefined || (tenant !== undefined && tenant !== owner)) return undefined
  return new MovedAway(key, moved)
}
