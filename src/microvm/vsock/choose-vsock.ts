import { UsageError } from '../command-line/parse.mjs'

/** The ways to reach a guest, the best first. */
const VSOCK_KINDS = ['vhost', 'vhost-user', 'tcp'] as const

/**
 * `vhost`: the kernel's /dev/vhost-vsock. `vhost-user`: the daemon vhost-device-vsock. `tcp`: no vsock at all, but
 * QEMU's user network and a port on this host's loopback.
 */
export type VsockKind = (typeof VSOCK_KINDS)[number]

/** The kinds to try, in order. Throws {@link UsageError} for an unknown MICROVM_VSOCK (`override`). */
export function vsockCandidates(facts: {
  readonly override: string | undefined
  readonly vhostUsable: boolean
}): readonly VsockKind[] {
  const { override, vhostUsable } = facts
  if (override !== undefined && override !== '') {
    const chosen = VSOCK_KINDS.find((kind) => kind === override)
    if (chosen !== undefined) return [chosen]
    throw new UsageError(`MICROVM_VSOCK=${override}: choose ${VSOCK_KINDS.join(', ')}`)
  }
  return VSOCK_KINDS.filter((kind) => kind !== 'vhost' || vhostUsable)
}
