import type { Socket } from 'node:net'
import { connectSocket } from '../../../src/client/connection/connect-socket.ts'
import { hybridHandshake } from '../../../src/client/connection/dial.ts'
import { guestSocket } from '../../../src/host/instance/machine/daemon-steps.ts'
import { runFolderOf } from '../../../src/host/instance/open-host-instances.ts'
import type { TestGuest } from './boot-guest.ts'

/** The socket that reaches the guest of a run in `folder`. The guest reaches the host at the same path with `_PORT` appended. */
export function guestSocketIn(folder: string): string {
  return guestSocket(runFolderOf(folder))
}

/** The guest must have been booted with `vsock: 'vhost-user'`. */
export async function dialGuest(guest: Pick<TestGuest, 'folder'>, port: number): Promise<Socket> {
  const signal = AbortSignal.timeout(10_000)
  const socket = await connectSocket({ path: guestSocketIn(guest.folder) }, signal)
  await hybridHandshake(socket, port, signal)
  return socket
}
