import type { Duplex } from 'node:stream'
import { AgentError } from '../../base/errors.ts'
import type { Address } from './address.ts'
import { connectSocket } from './connect-socket.ts'
import { hybridHandshake } from './hybrid.ts'

/** Connects to an address, one try. Rejects with UNAVAILABLE or an errno, or with the signal's reason. */
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
    default:
      return address satisfies never
  }
}

/** An abstract name begins with a NUL for the kernel. */
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

/** Where a package of the agent is installed. */
const INSTALLED = '/usr/lib/microvm-agent/agent.cjs'

/** Node lacks AF_VSOCK; the agent's addon has it. Loaded at the first vsock address only. */
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
