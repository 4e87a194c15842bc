import type { Socket } from 'node:net'
import { checkErrno } from '../errors.ts'
import type { Native } from '../native.ts'
import type { Streams } from '../streams/streams.ts'
import { SocketHandles } from './socket-handles.ts'
import type { VsockAddress } from './sockets.ts'

/** The kernel's default. */
const CONNECT_MS = 2000

/** Connects to an AF_VSOCK address. Rejects with the errno, or with the reason of `signal`. */
export async function connectVsock(
  { native, streams }: { readonly native: Native; readonly streams: Streams },
  { cid, port }: VsockAddress,
  signal: AbortSignal,
): Promise<Socket> {
  const name = `vsock ${cid}:${port}`
  const fd = checkErrno('connect', name, native.vsockSocket(CONNECT_MS))
  try {
    checkErrno('connect', name, native.vsockConnect(cid, port, fd))
    await streams.writable(fd, signal)
    checkErrno('connect', name, native.socketError(fd))
    return new SocketHandles(native).socket(fd)
  } catch (error) {
    streams.close(fd)
    throw error
  }
}
