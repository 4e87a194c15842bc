/** Context ids with a meaning (vsock(7)). */
export const VSOCK_CID = { any: 0xffffffff, loopback: 1, host: 2 } as const

/**
 * Whether the peer of a vsock connection may be served. Only the host may (CID 2): any process inside the guest can dial
 * the agent through the loopback device (CID 1), which `allowLoopback` lets in for tests. A peer without an address
 * may not.
 */
export function isPeerAllowed(peer: { readonly cid: number } | undefined, allowLoopback: boolean): boolean {
  return peer?.cid === VSOCK_CID.host || (allowLoopback && peer?.cid === VSOCK_CID.loopback)
}
