import { spawnSync } from 'node:child_process'
import { constants } from 'node:fs'
import { createServer } from 'node:net'
import { join } from 'node:path'
import { AgentError, messageOf } from '../../../base/errors.ts'
import { cached } from '../../../build/cache.ts'
import { extractPackage, fetchPackages } from '../../../debian/packages.ts'
import { placesOf } from '../find-program.ts'
import { hasAccess } from '../host.ts'
import { AGENT_PORT, type GuestLink, VSOCK_KINDS, type VsockKind } from './guest-link.ts'

interface LinkOptions {
  /** MICROVM_VSOCK. */
  readonly override: string | undefined
  readonly progress: (line: string) => void
}

/**
 * Chooses the best way to reach a guest of this process. Falls back to the next best one and reports why in one line; tries
 * only the override when there is one. Rejects with UNAVAILABLE when no way works.
 */
export async function chooseLink({ override, progress }: LinkOptions): Promise<GuestLink> {
  const reasons: string[] = []
  for (const kind of vsockCandidates({ override, vhostUsable: isVhostUsable() })) {
    try {
      const link = await LINKS[kind](progress)
      if (reasons.length > 0) progress(`no vsock here, using ${kind} instead: ${reasons.join('; ')}`)
      return link
    } catch (error) {
      reasons.push(messageOf(error).replace(/\s*\n\s*/g, ' '))
    }
  }
  throw new AgentError('UNAVAILABLE', `no way to reach a guest: ${reasons.join('; ')}`)
}

/** The way to reach a guest that a daemon keeps, which chooses the context id. Never `tcp`. */
export function daemonLink(override: string | undefined): GuestLink {
  const [kind] = vsockCandidates({ override, vhostUsable: isVhostUsable() })
  return vsockLink(kind === 'vhost' ? 'vhost-vsock' : 'vsock-daemon', 0)
}

function isVhostUsable(): boolean {
  return hasAccess('/dev/vhost-vsock', constants.R_OK | constants.W_OK)
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

const LINKS: Readonly<Record<VsockKind, (progress: (line: string) => void) => Promise<GuestLink>>> = {
  vhost: async () => {
    // A daemon, which does not build, needs no bundler.
    const { buildAgent } = await import('../../../build/agent.ts')
    // Node lacks AF_VSOCK; the agent's addon, by which the address is dialled, has it.
    await buildAgent()
    return vsockLink('vhost-vsock', FIRST_CID + process.pid)
  },
  'vhost-user': async (progress) => {
    await findVsockDaemon(progress)
    // The daemon serves this guest alone, so the number need not be unique on this host.
    return vsockLink('vsock-daemon', FIRST_CID)
  },
  tcp: tcpLink,
}

/** Context ids below 3 are reserved. The pid is added, so that each guest of this host has its own. */
const FIRST_CID = 3

function vsockLink(kind: 'vhost-vsock' | 'vsock-daemon', cid: number): GuestLink {
  return {
    device: (slot, backend) => ({ kind: 'vsock', slot, cid, backend }),
    backend: { kind },
    commandLine: [],
  }
}

/** The guest's address in QEMU's user network. */
const GUEST_ADDRESS = '10.0.2.15'
/** `ip=` of the kernel (Documentation/admin-guide/nfs/nfsroot.rst): address, gateway, mask, interface, no DHCP. */
const GUEST_NETWORK = `ip=${GUEST_ADDRESS}::10.0.2.2:255.255.255.0::eth0:off`
/** Locally administered. */
const GUEST_MAC = '52:54:00:00:00:02'

/** A link without vsock: the agent listens on TCP in QEMU's user network, forwarded from a port of this host's loopback. */
async function tcpLink(): Promise<GuestLink> {
  const hostPort = await freePort()
  return {
    device: (slot, backend) => ({ kind: 'nic', slot, mac: GUEST_MAC, backend }),
    backend: { kind: 'user-network', forwards: [{ hostPort, guestPort: AGENT_PORT }] },
    commandLine: [`agent.server_addr=tcp://0.0.0.0:${AGENT_PORT}`, GUEST_NETWORK],
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

const PROGRAM = 'vhost-device-vsock'

/**
 * The path of vhost-device-vsock: on PATH, or else from the package of Debian sid, which is verified by apt's signatures,
 * unpacked below build/ and never installed. Later runs find it there. Throws UNAVAILABLE when neither has it.
 */
export async function findVsockDaemon(progress: (line: string) => void): Promise<string> {
  const found = placesOf(PROGRAM).find((path) => hasAccess(path, constants.X_OK))
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
