import { spawnSync } from 'node:child_process'
import { constants } from 'node:fs'
import { createServer } from 'node:net'
import { delimiter, join } from 'node:path'
import { AgentError, messageOf } from '../../../base/errors.ts'
import { buildAgent } from '../../../build/agent.ts'
import { cached } from '../../../build/cache.ts'
import { dial } from '../../../client/connection/dial.ts'
import { extractPackage, fetchPackages } from '../../../debian/packages.ts'
import { startSocketServer } from '../child.ts'
import { hasAccess } from '../host.ts'
import { AGENT_PORT, type GuestLink, type OwnLink } from './guest-link.ts'

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

/** The kinds to try, in order. Throws INVALID_ARGUMENT for an unknown MICROVM_VSOCK (`override`). */
export function vsockCandidates(facts: {
  readonly override: string | undefined
  readonly vhostUsable: boolean
}): readonly VsockKind[] {
  const { override, vhostUsable } = facts
  if (override !== undefined && override !== '') {
    const chosen = VSOCK_KINDS.find((kind) => kind === override)
    if (chosen !== undefined) return [chosen]
    throw new AgentError('INVALID_ARGUMENT', `MICROVM_VSOCK=${override}: choose ${VSOCK_KINDS.join(', ')}`)
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

/** The daemon serves this guest alone, so the number need not be unique on this host. */
const GUEST_CID = 3

/**
 * The daemon 0.3.0 drops a packet of more than two descriptors, which Linux 6.12 sends above some 32 KiB. The guest has no
 * more bytes on their way than this buffer takes.
 */
const BUFFER_BYTES = 28 * 1024

/** The socket that reaches the guest. The guest reaches the host at the same path with `_PORT` appended. */
export function guestSocketIn(folder: string): string {
  return join(folder, 'vsock.sock')
}

/**
 * A link through the vhost-user daemon vhost-device-vsock (`program`), which this starts and which makes its sockets in
 * `folder`. Rejects with UNAVAILABLE and the daemon's own words when it does not start.
 */
async function vhostUserLink(program: string, folder: string): Promise<OwnLink> {
  const guestSocket = guestSocketIn(folder)
  const vhostSocket = join(folder, 'vhost-user.sock')
  const sockets = `socket=${vhostSocket},uds-path=${guestSocket}`
  const vm = `guest-cid=${GUEST_CID},${sockets},tx-buffer-size=${BUFFER_BYTES}`
  const daemon = await startSocketServer('vhost-device-vsock', [program, '--vm', vm], vhostSocket)
  return {
    device: (slot, backend) => ({ kind: 'vsock', slot, cid: GUEST_CID, backend }),
    backend: { kind: 'vhost-user', socket: vhostSocket },
    commandLine: [],
    address: { kind: 'hvsock', path: guestSocket, port: AGENT_PORT },
    close: () => daemon.kill(),
  }
}

const PROGRAM = 'vhost-device-vsock'

/**
 * The path of vhost-device-vsock: on PATH, or else from the package of Debian sid, which is verified by apt's signatures,
 * unpacked below build/ and never installed. Later runs find it there. Throws UNAVAILABLE when neither has it.
 */
export async function findVsockDaemon(progress: (line: string) => void): Promise<string> {
  const installed = (process.env.PATH ?? '').split(delimiter).map((folder) => join(folder, PROGRAM))
  const found = installed.find((path) => hasAccess(path, constants.X_OK))
  if (found !== undefined) return found
  const [fetched] = await fetchPackages({ suite: 'sid', packages: [PROGRAM], progress })
  if (fetched === undefined) throw new AgentError('UNAVAILABLE', `Debian sid gave no package ${PROGRAM}`)
  const folder = await cached(PROGRAM, { values: [fetched.version] }, async (target) => {
    await extractPackage(fetched.path, target)
    checkItStarts(join(target, 'usr/bin', PROGRAM))
  })
  return join(folder, 'usr/bin', PROGRAM)
}

/** Checks that the program starts: the package is of a newer Debian, and its libraries may be missing here. */
function checkItStarts(program: string): void {
  const result = spawnSync(program, ['--version'], { encoding: 'utf8', timeout: 10_000 })
  if (result.status === 0) return
  const reason = result.error?.message ?? result.stderr.trim()
  throw new AgentError('UNAVAILABLE', `${PROGRAM} of Debian sid does not start on this machine: ${reason}`)
}
