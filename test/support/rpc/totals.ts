import { type ConnectionTotals, Totals } from '../../../src/rpc/limits.ts'

/** A connection's share of `totals`. `close` is called when the connection has to make room for another. */
export function connectionTotals(
  totals = new Totals(),
  close: (reason: string) => void = () => {},
): ConnectionTotals {
  const connection = totals.addConnection(close)
  if (connection === undefined) throw new Error('too many connections')
  return connection
}
