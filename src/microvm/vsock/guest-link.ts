import { connect, type NetConnectOpts, type Socket } from 'node:net'
import type { Duplex } from 'node:stream'
import { AgentError, messageOf } from '../../base/errors.ts'
import type { Backend, Device, SpecKey } from '../spec.ts'

/** A way from this host to a guest's agent: a device of the machine, and how to connect through it. */
export interface GuestLink {
  /** The device to put into the machine, in PCI slot `slot`, with the backend of key `backend`. */
  device(slot: number, backend: SpecKey): Device
  readonly backend: Backend
  /** Words for the kernel command line. */
  readonly commandLine: readonly string[]
  /**
   * Connects to the agent. Rejects with UNAVAILABLE until the agent listens; a `tcp` connection may instead be made and
   * closed again until then.
   */
  connect(signal: AbortSignal): Promise<Duplex>
  /** Ends everything that this link started. */
  close(): Promise<void>
}

/** The agent's port, on vsock and on TCP. */
export const AGENT_PORT = 1024

/** Connects a unix or TCP socket. Rejects with UNAVAILABLE, or with the signal's reason. */
export async function connectSocket(options: NetConnectOpts, signal: AbortSignal): Promise<Socket> {
  signal.throwIfAborted()
  const socket = connect(options)
  const connected = Promise.withResolvers<void>()
  const onAbort = () => connected.reject(signal.reason)
  const onError = (error: Error) =>
    connected.reject(new AgentError('UNAVAILABLE', messageOf(error), { cause: error }))
  signal.addEventListener('abort', onAbort, { once: true })
  socket.once('connect', connected.resolve).once('error', onError)
  try {
    await connected.promise
    socket.off('error', onError)
    return socket
  } catch (error) {
    // The socket is no longer used, so a late error of it has no meaning.
    socket.on('error', () => {}).destroy()
    throw error
  } finally {
    signal.removeEventListener('abort', onAbort)
  }
}
