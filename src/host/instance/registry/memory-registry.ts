import { AgentError } from '../../../base/errors.ts'
import { checkChanges } from './check-changes.ts'
import { type Registry, TABLES, type Table } from './registry.ts'

/** A registry that ends with the process: for `./microvm run` and for tests. */
export function memoryRegistry(): Registry {
  const tables = new Map(TABLES.map((table) => [table, new Map<string, Uint8Array>()]))
  const rowsOf = (table: Table) => tables.get(table) ?? new Map<string, Uint8Array>()
  let closed = false
  const refuseIfClosed = () => {
    if (closed) throw new AgentError('INTERNAL', 'registry: closed')
  }
  return {
    load: async (table) => {
      refuseIfClosed()
      return new Map([...rowsOf(table)].map(([key, payload]) => [key, payload.slice()]))
    },
    commit: async (changes) => {
      refuseIfClosed()
      checkChanges(changes)
      for (const { table, key, payload } of changes) {
        if (payload === undefined) rowsOf(table).delete(key)
        else rowsOf(table).set(key, new Uint8Array(payload))
      }
    },
    close: async () => {
      closed = true
    },
  }
}
