import type { Socket } from 'node:net'
import { connectSocket } from '../../../src/client/connection/connect-socket.ts'
import { hybridHandshake } from '../../../src/client/connection/dial.ts'
import { guestSocketIn } from '../../../src/host/qemu/vsock/open-link.ts'
import type { TestGuest } from './boot-guest.ts'

/** The guest must have been booted with `vsock: 'vhost-user'`. */
export async function dialGuest(guest: Pick<TestGuest, 'folder'>, port: number): Promise<Socket> {
  const signal = AbortSignal.timeout(10_000)
  const socket = await connectSocket({ path: guestSocketIn(guest.folder) }, signal)
  await hybridHandshake(socket, port, signal)
  return socket
}
