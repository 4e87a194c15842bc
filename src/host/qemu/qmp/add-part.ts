import { AgentError } from '../../../base/errors.ts'
import type { QmpCommand } from '../parts.ts'
import type { QmpClient } from './client.ts'

/** A daemon of a network listens already. */
const CONNECT_MS = 10_000

/** Adds a part to a running machine. A network of a socket has connected then: QEMU 7.2 dies when it is removed before. */
export async function addPart(
  qmp: Pick<QmpClient, 'command' | 'event'>,
  command: QmpCommand,
  signal: AbortSignal,
): Promise<void> {
  const { id, type } = command.arguments
  if (command.execute !== 'netdev_add' || type !== 'stream') {
    await qmp.command(command, signal)
    return
  }
  const late = AbortSignal.timeout(CONNECT_MS)
  const over = new AbortController()
  const connected = qmp.event(
    ({ name, data }) => name === 'NETDEV_STREAM_CONNECTED' && data['netdev-id'] === id,
    AbortSignal.any([signal, late, over.signal]),
  )
  connected.catch(() => {})
  try {
    await qmp.command(command, signal)
    await connected
  } catch (error) {
    throw error === late.reason && late.aborted
      ? new AgentError('UNAVAILABLE', `netdev_add: ${id}: not connected within ${CONNECT_MS} ms`)
      : error
  } finally {
    over.abort()
  }
}
