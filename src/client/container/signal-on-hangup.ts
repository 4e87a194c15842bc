import { clientFor } from '../../rpc/client.ts'
import type { TtrpcClient } from '../../rpc/ttrpc/client.ts'
import type { ProcessKey } from './stdio.ts'

const UNDO_MS = 1000

/**
 * Has the agent send `signal` to a process when this connection ends. Returns a function that cancels this. Kata's
 * agent has no such call, so there the process lives on.
 */
export async function signalOnHangup(
  connection: Pick<TtrpcClient, 'call'>,
  process: ProcessKey,
  signal: number,
): Promise<() => Promise<void>> {
  // Loaded here, because most tools do not need its messages.
  const { IntrospectionDefinition } = await import('../../gen/microvm/agent/v1/introspection.ts')
  const { signalOnHangup: wait } = clientFor(IntrospectionDefinition, connection)
  wait({ ...process, signal }).catch(() => {})
  return async () => {
    await wait({ ...process, signal: 0 }, { timeoutMs: UNDO_MS }).catch(() => {})
  }
}
