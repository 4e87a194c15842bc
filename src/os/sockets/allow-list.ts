/** Reserved context ids (vsock(7)). */
export const VSOCK_CID = { any: 0xffffffff, loopback: 1, host: 2 } as const

/**
 * Only the host (CID 2) may use the API: any process in the guest can connect by loopback (CID 1), which
 * `allowLoopback` accepts for tests. A peer without an address may not.
 */
export function isPeerAllowed(peer: { readonly cid: number } | undefined, allowLoopback: boolean): boolean {
  return peer?.cid === VSOCK_CID.host || (allowLoopback && peer?.cid === VSOCK_CID.loopback)
}
