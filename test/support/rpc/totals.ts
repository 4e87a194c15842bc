import { type ConnectionTotals, Totals } from '../../../src/rpc/limits.ts'

/** What a connection takes of limits, which it has for itself; `close` is called for the sake of a limit. */
export function connectionTotals(
  totals = new Totals(),
  close: (reason: string) => void = () => {},
): ConnectionTotals {
  const connection = totals.addConnection(close)
  if (connection === undefined) throw new Error('too many connections')
  return connection
}
