import { join } from 'node:path'
import { type Forward, forward } from '../rpc/forward.ts'
import type { TestGuest } from './boot-guest.ts'

/** Lets programs that know unix sockets alone reach a guest's agent. The socket is in the guest's private folder. */
export function forwardTo({ guest, folder }: TestGuest): Promise<Forward> {
  return forward(join(folder, 'forward.sock'), () => guest.link.connect(guest.vm.gone))
}
