import { constants } from 'node:fs'
import { AgentError, messageOf } from '../../base/errors.ts'
import { hasAccess } from '../has-access.ts'
import { type VsockKind, vsockCandidates } from './choose-vsock.ts'
import { findVsockDaemon } from './find-daemon.ts'
import type { GuestLink } from './guest-link.ts'
import { tcpLink } from './tcp-link.ts'
import { vhostLink } from './vhost-link.ts'
import { vhostUserLink } from './vhost-user-link.ts'

/** Where a link makes its sockets, and whom it tells. */
export interface LinkHost {
  /** The run's private folder. */
  readonly folder: string
  /** MICROVM_VSOCK. */
  readonly override: string | undefined
  readonly progress: (line: string) => void
}

/**
 * The best way to reach a guest from this host. Falls back to the next best one, telling why in one line; with an
 * override it tries that way alone.
 */
export async function openLink(host: LinkHost): Promise<GuestLink> {
  const vhostUsable = hasAccess('/dev/vhost-vsock', constants.R_OK | constants.W_OK)
  const candidates = vsockCandidates({ override: host.override, vhostUsable })
  const reasons: string[] = []
  for (const kind of candidates) {
    try {
      const link = await openKind(kind, host)
      if (reasons.length > 0) host.progress(`no vsock here, using ${kind} instead: ${reasons.join('; ')}`)
      return link
    } catch (error) {
      reasons.push(messageOf(error).replace(/\s*\n\s*/g, ' '))
    }
  }
  throw new AgentError('UNAVAILABLE', `no way to reach a guest: ${reasons.join('; ')}`)
}

async function openKind(kind: VsockKind, host: LinkHost): Promise<GuestLink> {
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
