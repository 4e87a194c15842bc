import { constants, type FileHandle, open } from 'node:fs/promises'
import type { Duplex } from 'node:stream'
import { abortable } from '../../base/abort.ts'
import { AgentError, errnoOf } from '../../base/errors.ts'
import { formatIp, parseIp } from '../../base/ip-address.ts'
import type { Address } from '../../client/connection/address.ts'
import { connectSocket } from '../../client/connection/connect-socket.ts'
import { dial } from '../../client/connection/dial.ts'
import type { Specification } from '../../gen/microvm/instance/v1/instance.ts'
import { type VsockDevice, vsockDriverReady } from '../qemu/vsock/driver-ready.ts'
import { AGENT_PORT } from '../qemu/vsock/guest-link.ts'
import { qemuId, specKey } from '../spec/spec-key.ts'
import { specificationOf } from './devices/plug.ts'
import type { MachineInstance } from './instance.ts'
import { guestSocket } from './machine/daemon-steps.ts'
import { linksOfWords, type TapLink } from './machine/tap-links.ts'

/** The device of vhost-device-vsock, in a machine that is there. */
export function vsockOf(instance: MachineInstance): (VsockDevice & { readonly key: string }) | undefined {
  const { devices, backends } = specificationOf(instance)
  const [key] = Object.keys(devices).filter((each) => backends[devices[each]?.backend ?? '']?.vsockDaemon)
  if (key === undefined) return undefined
  return { key, qmp: instance.machine().qmp, id: qemuId(specKey(key)), ending: instance.ending }
}

/** Waits for the guest's driver of its vsock device, if it has one. */
export async function vsockTaken(instance: MachineInstance): Promise<void> {
  const device = vsockOf(instance)
  if (device !== undefined) await vsockDriverReady(device)
}

/** Less than a client gives to one attempt, so that it learns the reason before it tries again. */
const DRIVER_MS = 4_000

async function dialHybrid(instance: MachineInstance, signal: AbortSignal): Promise<Duplex> {
  const late = AbortSignal.timeout(DRIVER_MS)
  await abortable(vsockTaken(instance), AbortSignal.any([signal, late])).catch((error) => {
    if (signal.aborted || !late.aborted) throw error
    throw new AgentError('UNAVAILABLE', `instance ${instance.key}: its guest has no driver of its vsock`)
  })
  const address = { kind: 'hvsock', path: guestSocket(instance.context.folder), port: AGENT_PORT } as const
  const { uid } = instance.record
  if (uid === 0) return await dial(address, signal)
  await using socket = await openSocketOf(uid, address.path)
  return await dial({ ...address, path: `/proc/self/fd/${socket.fd}` }, signal)
}

const O_PATH = 0o10_000_000

/**
 * The instance's processes own the folder of this socket, and could have put a link to a socket of another there. Rejects
 * with PERMISSION_DENIED for what is no socket of theirs.
 */
export async function openSocketOf(uid: number, path: string): Promise<FileHandle> {
  const file = await open(path, O_PATH | constants.O_NOFOLLOW).catch((error) => {
    throw new AgentError('UNAVAILABLE', `${path}: ${errnoOf(error)}`)
  })
  const status = await file.stat()
  if (status.isSocket() && status.uid === uid) return file
  await file.close()
  throw new AgentError('PERMISSION_DENIED', `${path}: no socket of the instance's user`)
}

/** A connection to the agent in the guest, by the way that the machine has. */
export async function dialAgent(instance: MachineInstance, signal: AbortSignal): Promise<Duplex> {
  const address = ownAddress(instance)
  if (address?.kind === 'hvsock') return await dialHybrid(instance, signal)
  if (address !== undefined) return await dial(address, signal)
  const { ip, peerIp, interfaceName } = ownLink(instance)
  // Several machines may have the same addresses of this kind, each on its own interface.
  const zone = isLinkLocal(ip) ? `%${interfaceName}` : ''
  const ends = { host: `${ip}${zone}`, localAddress: `${peerIp}${zone}` }
  return await connectSocket({ ...ends, port: AGENT_PORT, noDelay: true }, signal)
}

/** Of fe80::/10 (RFC 4291). */
function isLinkLocal(ip: string): boolean {
  const [first, second = 0] = parseIp(ip) ?? []
  return first === 0xfe && second >> 6 === 2
}

/** Whether the machine has a way to an agent. */
export function hasAgentWay(instance: MachineInstance): boolean {
  if (ownAddress(instance) !== undefined) return true
  try {
    ownLink(instance)
    return true
  } catch {
    return false
  }
}

/** Where the agent listens besides a tap of the machine. */
export function ownAddress(instance: MachineInstance): Address | undefined {
  const { context, record } = instance
  return agentAddress(specificationOf(instance), { folder: context.folder, cid: record.cid })
}

/** The link of the machine's tap whose end on this host is the only address that the agent lets connect. */
function ownLink(instance: MachineInstance): TapLink & { readonly interfaceName: string } {
  const fail = (text: string) => new AgentError('FAILED_PRECONDITION', `instance ${instance.key}: ${text}`)
  const links = instance.recorded.steps.flatMap(({ step, words }) =>
    step === 'tap'
      ? linksOfWords(words.slice(FIRST_LINK)).map((link) => ({ ...link, interfaceName: words[1] ?? '' }))
      : [],
  )
  if (links.length === 0) throw fail('no vsock, and no tap of its own whose addresses its VM metadata has')
  const peer = onlyPeer(specificationOf(instance).board?.commandLine ?? '')
  const own = links.find(({ peerIp }) => peerIp === peer)
  if (own !== undefined) return own
  const wanted = links.map(({ peerIp }) => `${PEER_WORD}${peerIp}`).join(' or ')
  throw fail(`board.command_line: other addresses may call its agent by TCP too, want ${wanted}`)
}

/** Before the links, a step `tap` has three words. */
const FIRST_LINK = 3
const PEER_WORD = 'agent.server_peer='

/** As the agent reads it: the last word counts. */
function onlyPeer(commandLine: string): string | undefined {
  const word = commandLine.split(/\s+/).findLast((each) => each.startsWith(PEER_WORD))
  const bytes = parseIp(word?.slice(PEER_WORD.length) ?? '')
  return bytes && formatIp(bytes)
}

/** Where the agent listens for all of this host, by the instance's folder and context id; undefined when it does not. */
export function agentAddress(
  { devices, backends }: Specification,
  { folder, cid }: { readonly folder: string; readonly cid: number },
): Address | undefined {
  const vsock = Object.values(devices).find((device) => device.vsock !== undefined)
  const backend = backends[vsock?.backend ?? '']
  if (backend?.vsockDaemon !== undefined)
    return { kind: 'hvsock', path: guestSocket(folder), port: AGENT_PORT }
  if (backend?.vhostVsock !== undefined) return { kind: 'vsock', cid, port: AGENT_PORT }
  const forwards = Object.values(backends).flatMap(({ userNetwork }) => userNetwork?.forwards ?? [])
  const forward = forwards.find(({ guestPort }) => guestPort === AGENT_PORT)
  return forward && { kind: 'tcp', host: '127.0.0.1', port: forward.hostPort }
}
