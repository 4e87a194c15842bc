import { existsSync, watch } from 'node:fs'
import { dirname, join } from 'node:path'
import { AgentError, messageOf } from '../../base/errors.ts'
import { type Child, describeExit, startChild } from '../child.ts'
import { connectSocket } from '../connect-socket.ts'
import { ConsoleTail } from '../console-tail.ts'
import { AGENT_PORT, type GuestLink } from './guest-link.ts'
import { hybridHandshake } from './hybrid.ts'

/** The daemon serves one guest in a folder of its own, so the number need not be unique on this host. */
const GUEST_CID = 3
const START_TIMEOUT_MS = 10_000

/** The socket that reaches the guest; beside it, with `_PORT` behind its name, is where the guest reaches the host. */
export function guestSocketIn(folder: string): string {
  return join(folder, 'vsock.sock')
}

/**
 * Through the vhost-user daemon vhost-device-vsock (`program`), which is started here and makes its sockets in
 * `folder`. Rejects with UNAVAILABLE, naming the daemon's own words, when it does not start.
 */
export async function vhostUserLink(program: string, folder: string): Promise<GuestLink> {
  const guestSocket = guestSocketIn(folder)
  const vhostSocket = join(folder, 'vhost-user.sock')
  const vm = `guest-cid=${GUEST_CID},socket=${vhostSocket},uds-path=${guestSocket}`
  const daemon = await startChild('vhost-device-vsock', [program, '--vm', vm])
  const words = new ConsoleTail(daemon.stderr)
  daemon.stdout.resume()
  try {
    await appearance(vhostSocket, daemon)
  } catch (error) {
    await daemon.kill()
    const said = words.lines.length > 0 ? `: ${words.lines.join(' ')}` : ''
    throw new AgentError('UNAVAILABLE', `vhost-device-vsock made no socket: ${messageOf(error)}${said}`)
  }
  return {
    device: (slot, backend) => ({ kind: 'vsock', slot, cid: GUEST_CID, backend }),
    backend: { kind: 'vhost-user', socket: vhostSocket },
    commandLine: [],
    connect: async (signal) => {
      const socket = await connectSocket({ path: guestSocket }, signal)
      try {
        await hybridHandshake(socket, AGENT_PORT, signal)
        return socket
      } catch (error) {
        socket.destroy()
        throw error
      }
    },
    close: () => daemon.kill(),
  }
}

/** Waits until the daemon has made its socket, or rejects when it ended or took too long. */
async function appearance(path: string, daemon: Child): Promise<void> {
  const appeared = Promise.withResolvers<void>()
  const look = () => existsSync(path) && appeared.resolve()
  const watcher = watch(dirname(path), look)
  const timer = setTimeout(() => appeared.reject(new Error('it took too long')), START_TIMEOUT_MS)
  void daemon.exited.then((exit) => appeared.reject(new Error(`it ${describeExit(exit)}`)))
  // What was there before the watch began makes no event.
  look()
  try {
    await appeared.promise
  } finally {
    clearTimeout(timer)
    watcher.close()
  }
}
