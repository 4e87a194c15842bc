import { type ListenAddress, VSOCK_CID, type VsockAddress } from '../../os/sockets/sockets.ts'

/**
 * Whether a connection may speak at all. On vsock only the host may (CID 2), for any process inside the guest can dial
 * its own agent through the loopback; `allowLoopback` lets those in too (CID 1), which is for tests. On the other
 * kinds the address itself says who can reach it.
 */
export function admits(
  kind: ListenAddress['kind'],
  peer: VsockAddress | undefined,
  allowLoopback: boolean,
): boolean {
  if (kind !== 'vsock') return true
  return peer?.cid === VSOCK_CID.host || (allowLoopback && peer?.cid === VSOCK_CID.loopback)
}
