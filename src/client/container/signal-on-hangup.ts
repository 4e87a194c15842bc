import { clientFor } from '../../rpc/client.ts'
import type { TtrpcClient } from '../../rpc/ttrpc/client.ts'
import type { ProcessKey } from './stdio.ts'

/** How long the agent may take to forget it. */
const UNDO_MS = 1000

/**
 * Has the agent send a process the signal when this connection ends before it, however the tool ends. Returns what undoes
 * that. The reference has no such call; there the process lives on.
 */
export async function signalOnHangup(
  connection: Pick<TtrpcClient, 'call'>,
  process: ProcessKey,
  signal: number,
): Promise<() => Promise<void>> {
  // Its messages are loaded here, because most tools do not need them.
  const { IntrospectionDefinition } = await import('../../gen/microvm/agent/v1/introspection.ts')
  const { signalOnHangup: wait } = clientFor(IntrospectionDefinition, connection)
  wait({ ...process, signal }).catch(() => {})
  return async () => {
    await wait({ ...process, signal: 0 }, { timeoutMs: UNDO_MS }).catch(() => {})
  }
}
