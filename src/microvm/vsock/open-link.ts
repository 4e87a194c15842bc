import { constants } from 'node:fs'
import { AgentError, messageOf } from '../../base/errors.ts'
import { dial } from '../../client/connection/dial.ts'
import { UsageError } from '../command-line/parse.mjs'
import { hasAccess } from '../host.ts'
import { findVsockDaemon } from './find-daemon.ts'
import type { GuestLink, OwnLink } from './guest-link.ts'
import { tcpLink } from './tcp-link.ts'
import { vhostLink } from './vhost-link.ts'
import { vhostUserLink } from './vhost-user-link.ts'

/** The ways to reach a guest, best first. */
const VSOCK_KINDS = ['vhost', 'vhost-user', 'tcp'] as const

/**
 * `vhost`: the kernel's /dev/vhost-vsock. `vhost-user`: the daemon vhost-device-vsock. `tcp`: not vsock, but
 * QEMU's user network and a port on this host's loopback.
 */
export type VsockKind = (typeof VSOCK_KINDS)[number]

/** What opening a link needs of the host. */
export interface LinkHost {
  /** The run's private folder, for sockets. */
  readonly folder: string
  /** MICROVM_VSOCK. */
  readonly override: string | undefined
  readonly progress: (line: string) => void
}

/**
 * Opens the best way to reach a guest from this host. Falls back to the next best one and reports why in one line; tries
 * only the override when there is one. Rejects with UNAVAILABLE when no way works.
 */
export async function openLink(host: LinkHost): Promise<GuestLink> {
  const vhostUsable = hasAccess('/dev/vhost-vsock', constants.R_OK | constants.W_OK)
  const candidates = vsockCandidates({ override: host.override, vhostUsable })
  const reasons: string[] = []
  for (const kind of candidates) {
    try {
      const link = await openKind(kind, host)
      const connect = (signal: AbortSignal) => dial(link.address, signal)
      if (reasons.length > 0) host.progress(`no vsock here, using ${kind} instead: ${reasons.join('; ')}`)
      return { ...link, connect }
    } catch (error) {
      reasons.push(messageOf(error).replace(/\s*\n\s*/g, ' '))
    }
  }
  throw new AgentError('UNAVAILABLE', `no way to reach a guest: ${reasons.join('; ')}`)
}

async function openKind(kind: VsockKind, host: LinkHost): Promise<OwnLink> {
  switch (kind) {
    case 'vhost':
      return await vhostLink()
    case 'vhost-user':
      return await vhostUserLink(await findVsockDaemon(host.progress), host.folder)
    case 'tcp':
      return await tcpLink()
    default:
      return kind satisfies never
  }
}

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
