import { constants } from 'node:fs'
import { createServer } from 'node:net'
import { AgentError, messageOf } from '../../base/errors.ts'
import { buildAgent } from '../../build/agent.ts'
import { dial } from '../../client/connection/dial.ts'
import { UsageError } from '../command-line/parse.mjs'
import { hasAccess } from '../host.ts'
import { findVsockDaemon } from './find-daemon.ts'
import { AGENT_PORT, type GuestLink, type OwnLink } from './guest-link.ts'
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

/** Context ids below 3 are reserved. The pid is added, so that each guest of this host has its own. */
const FIRST_CID = 3

/** A link through /dev/vhost-vsock: the kernel connects the guest, and AF_VSOCK reaches it. */
async function vhostLink(): Promise<OwnLink> {
  const cid = FIRST_CID + process.pid
  // Node lacks AF_VSOCK; the agent's addon, by which the address is dialled, has it.
  await buildAgent()
  return {
    device: (slot, backend) => ({ kind: 'vsock', slot, cid, backend }),
    backend: { kind: 'vhost-vsock' },
    commandLine: [],
    address: { kind: 'vsock', cid, port: AGENT_PORT },
    close: async () => {},
  }
}

/** The guest's address in QEMU's user network. */
const GUEST_ADDRESS = '10.0.2.15'
/** `ip=` of the kernel (Documentation/admin-guide/nfs/nfsroot.rst): address, gateway, mask, interface, no DHCP. */
const GUEST_NETWORK = `ip=${GUEST_ADDRESS}::10.0.2.2:255.255.255.0::eth0:off`
/** Locally administered. */
const GUEST_MAC = '52:54:00:00:00:02'

/** A link without vsock: the agent listens on TCP in QEMU's user network, forwarded from a port of this host's loopback. */
async function tcpLink(): Promise<OwnLink> {
  const hostPort = await freePort()
  return {
    device: (slot, backend) => ({ kind: 'nic', slot, mac: GUEST_MAC, backend }),
    backend: { kind: 'user-network', forwards: [{ hostPort, guestPort: AGENT_PORT }] },
    commandLine: [`agent.server_addr=tcp://0.0.0.0:${AGENT_PORT}`, GUEST_NETWORK],
    address: { kind: 'tcp', host: '127.0.0.1', port: hostPort },
    close: async () => {},
  }
}

/** A port that was free a moment ago: QEMU cannot choose one itself and report it. */
async function freePort(): Promise<number> {
  const server = createServer()
  const listening = Promise.withResolvers<void>()
  server.once('error', listening.reject).listen(0, '127.0.0.1', listening.resolve)
  await listening.promise
  const address = server.address()
  const closed = Promise.withResolvers<void>()
  server.close(() => closed.resolve())
  await closed.promise
  if (address !== null && typeof address === 'object') return address.port
  throw new AgentError('INTERNAL', 'TCP server: no port')
}
