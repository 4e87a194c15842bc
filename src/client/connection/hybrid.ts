import type { Duplex } from 'node:stream'
import { abortable } from '../../base/abort.ts'
import { AgentError, errnoOf, messageOf } from '../../base/errors.ts'

/** Longer than any `OK <port>` line. */
const LONGEST_ANSWER = 32

/**
 * Asks a vsock daemon for the guest's `port` ("hybrid vsock", docs/vsock.md of Firecracker). Later bytes stay in the
 * stream. Rejects with UNAVAILABLE until the guest listens, because the daemon then closes the connection.
 */
export async function hybridHandshake(socket: Duplex, port: number, signal: AbortSignal): Promise<void> {
  socket.write(`CONNECT ${port}\n`)
  const answer = await abortable(readLine(socket), signal)
  if (!/^OK \d+$/.test(answer)) {
    throw new AgentError('INTERNAL', `vsock port ${port}: the daemon answered ${JSON.stringify(answer)}`)
  }
}

async function readLine(socket: Duplex): Promise<string> {
  let received = Buffer.alloc(0)
  try {
    for await (const chunk of socket.iterator({ destroyOnReturn: false })) {
      received = Buffer.concat([received, chunk])
      const end = received.indexOf('\n')
      if (end >= 0) {
        if (end + 1 < received.length) socket.unshift(received.subarray(end + 1))
        return received.toString('latin1', 0, end)
      }
      if (received.length > LONGEST_ANSWER) break
    }
  } catch (error) {
    if (errnoOf(error) !== 'ERR_STREAM_PREMATURE_CLOSE')
      throw new AgentError('UNAVAILABLE', `vsock: ${messageOf(error)}`, { cause: error })
  }
  if (received.length > LONGEST_ANSWER) throw new AgentError('INTERNAL', 'vsock: the daemon answered no line')
  throw new AgentError('UNAVAILABLE', 'vsock: the guest does not listen yet')
}
