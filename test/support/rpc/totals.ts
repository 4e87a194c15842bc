import { type ConnectionTotals, Totals } from '../../../src/rpc/limits.ts'

/** The limits of a connection that shares them with no other; `close` is called when a limit is exceeded. */
export function connectionTotals(
  totals = new Totals(),
  close: (reason: string) => void = () => {},
): ConnectionTotals {
  const connection = totals.addConnection(close)
  if (connection === undefined) throw new Error('too many connections')
  return connection
}
