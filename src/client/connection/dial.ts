import type { Duplex } from 'node:stream'
import { abortable } from '../../base/abort.ts'
import { AgentError, errnoOf, messageOf } from '../../base/errors.ts'
import type { Address } from './address.ts'
import { connectSocket } from './connect-socket.ts'

/** Connects once. Rejects with UNAVAILABLE, an errno, or the signal's reason. */
export async function dial(address: Address, signal: AbortSignal): Promise<Duplex> {
  switch (address.kind) {
    case 'unix':
      return await connectSocket({ path: socketPath(address.path) }, signal)
    case 'tcp':
      return await connectSocket({ host: address.host, port: address.port, noDelay: true }, signal)
    case 'hvsock':
      return await dialHybrid(address, signal)
    case 'vsock':
      return await dialVsock(address, signal)
    case 'instance': {
      const { connectMachine } = await import('../daemon/connect-machine.ts')
      return await connectMachine(address.socket, address.key, signal)
    }
    default:
      return address satisfies never
  }
}

/** An abstract name begins with a NUL (unix(7)). */
function socketPath(path: string): string {
  return path.startsWith('@') ? `\0${path.slice(1)}` : path
}

async function dialHybrid(
  { path, port }: Extract<Address, { kind: 'hvsock' }>,
  signal: AbortSignal,
): Promise<Duplex> {
  const socket = await connectSocket({ path: socketPath(path) }, signal)
  try {
    await hybridHandshake(socket, port, signal)
    return socket
  } catch (error) {
    socket.on('error', () => {}).destroy()
    throw error
  }
}

const INSTALLED = '/usr/lib/microvm-agent/agent.cjs'

/** Uses the agent's addon, because Node has no AF_VSOCK. Loads it only for vsock addresses. */
async function dialVsock(address: Extract<Address, { kind: 'vsock' }>, signal: AbortSignal): Promise<Duplex> {
  const [{ findAgentFolder, loadNative }, { connectVsock }, { linuxStreams }] = await Promise.all([
    import('../../os/native.ts'),
    import('../../os/sockets/connect-vsock.ts'),
    import('../../os/streams/linux-streams.ts'),
  ])
  const folder = firstOf([() => findAgentFolder(import.meta.filename), () => findAgentFolder(INSTALLED)])
  const native = loadNative(folder)
  return await connectVsock({ native, streams: linuxStreams(native) }, address, signal)
}

function firstOf(finders: readonly (() => string)[]): string {
  for (const find of finders) {
    try {
      return find()
    } catch (error) {
      if (!(error instanceof AgentError)) throw error
    }
  }
  throw new AgentError(
    'FAILED_PRECONDITION',
    'Node.js has no vsock of its own and addon.node was not found, want it beside agent-ctl or in /usr/lib/microvm-agent',
  )
}

/** Longer than any `OK <port>` line. */
const LONGEST_ANSWER = 32

/**
 * Asks a vsock daemon for the guest's `port` ("hybrid vsock", Firecracker's page on vsock). Later bytes stay in the
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
