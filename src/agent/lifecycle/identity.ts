import { dirname } from 'node:path/posix'
import { AgentError } from '../../base/errors.ts'
import { formatIp, parseIp } from '../../base/ip-address.ts'
import type { Identity } from '../../gen/microvm/agent/v1/lifecycle.ts'
import type { Interface } from '../../gen/types.ts'
import { addNeighbors } from '../../handlers/network/add-neighbors.ts'
import type { NetworkContext } from '../../handlers/network/context.ts'
import { updateInterface } from '../../handlers/network/update-interface.ts'
import { updateRoutes } from '../../handlers/network/update-routes.ts'
import type { SandboxContext } from '../../handlers/sandbox/context.ts'
import { checkContent } from '../../handlers/sandbox/identity.ts'
import { isMountPoint } from '../../os/files/mounts.ts'
import type { Os } from '../../os/os.ts'

export interface IdentityParts {
  readonly os: Pick<Os, 'files' | 'mounts' | 'network' | 'system'>
  readonly network: NetworkContext
  readonly sandbox: Pick<SandboxContext, 'sandboxState'>
  /** An own folder for files that cover those of the guest's root, which may be read-only. */
  readonly folder: string
}

/** One label of a host name or several (RFC 1123). */
const HOSTNAME = /^[a-z0-9]([a-z0-9.-]{0,62}[a-z0-9])?$/i

/** Throws INVALID_ARGUMENT. The calls whose fields these are check the rest. */
export function checkIdentity({ hostname, hosts, dns }: Identity): void {
  const wrong = (text: string) => new AgentError('INVALID_ARGUMENT', `identity.${text}`)
  if (hostname !== '' && !HOSTNAME.test(hostname))
    throw wrong('hostname: not a host name, want 1 to 64 letters, digits, dots and inner hyphens')
  for (const [field, text] of [
    ['hosts', hosts],
    ['dns', dns.join('\n')],
  ] as const) {
    checkContent(`identity.${field}`, text)
    if (text.includes('\0')) throw wrong(`${field}: contains a NUL byte`)
  }
}

/** Makes the guest the one of the identity. Doing it twice is doing it once. Throws the first failure. */
export async function takeIdentity(
  parts: IdentityParts,
  identity: Identity,
  signal: AbortSignal,
): Promise<void> {
  const { hostname, hosts, dns, interfaces, routes, neighbors } = identity
  const { files } = parts.os
  const before = (await files.readText('/proc/sys/kernel/hostname')).trim()
  // Before the name itself: an agent that goes on with this step has to know the old one.
  const named = hosts === '' && hostname !== '' ? await renamedHosts(parts.os, before, hostname) : hosts
  if (named !== '') await coverFile(parts, '/etc/hosts', named)
  if (hostname !== '') await takeHostname(parts, hostname)
  if (dns.length > 0) await coverFile(parts, '/etc/resolv.conf', dns.join('\n'))
  for (const each of interfaces) await takeInterface(parts, each, signal)
  if (routes.length > 0) await updateRoutes(parts.network, routes, signal)
  if (neighbors.length > 0) await addNeighbors(parts.network, neighbors, signal)
}

async function takeHostname({ os, sandbox }: IdentityParts, hostname: string): Promise<void> {
  os.system.setHostname(hostname)
  const uts = sandbox.sandboxState.view.sandbox?.namespaces.uts
  if (uts !== undefined) await os.mounts.hostnameIn(uts, hostname)
}

/** The guest's hosts with another name in place of its own; empty where they do not have it. */
async function renamedHosts({ files }: Pick<Os, 'files'>, before: string, hostname: string): Promise<string> {
  if ((await files.stat('/etc/hosts')) === undefined) return ''
  const text = await files.readText('/etc/hosts')
  const renamed = text
    .split('\n')
    .map((line) => line.replace(/[^\s#]+/g, (word) => (word === before ? hostname : word)))
    .join('\n')
  return renamed === text ? '' : renamed
}

/** A file that is covered already is written in place, because mounts of containers show the same file. */
async function coverFile(
  { os, folder }: Pick<IdentityParts, 'folder' | 'os'>,
  target: string,
  text: string,
): Promise<void> {
  const { files, mounts } = os
  const place = await realPath(os, target)
  if (await isMountPoint(os, place)) return files.write(place, text)
  const source = `${folder}${target}`
  await files.makeDirectories(dirname(source))
  await files.write(source, text, { mode: 0o644 })
  if ((await files.stat(place)) === undefined) return
  await mounts.mount({ source, target: place, type: '', flags: ['bind'], data: '' })
}

/** umount2(2) and the table of mounts know no symbolic links. */
async function realPath({ files }: Pick<Os, 'files'>, path: string): Promise<string> {
  let place = path
  for (let links = 0; links < MOST_LINKS && (await files.lstat(place))?.kind === 'symlink'; links++) {
    const target = await files.readLink(place)
    place = target.startsWith('/') ? target : `${dirname(place)}/${target}`
  }
  return place
}

/** As in the kernel (path_resolution(7)). */
const MOST_LINKS = 40

async function takeInterface(
  { network, os }: Pick<IdentityParts, 'network' | 'os'>,
  wanted: Interface,
  signal: AbortSignal,
): Promise<void> {
  await updateInterface(network, wanted, signal)
  if (wanted.IPAddresses.length === 0) return
  const link = os.network.links().find(({ name }) => name === wanted.name)
  const kept = new Set(wanted.IPAddresses.map(({ address }) => canonical(address)))
  const foreign = os.network
    .addresses()
    .filter(({ linkIndex, scope }) => linkIndex === link?.index && scope === GLOBAL)
    .filter(({ address }) => !kept.has(canonical(address)))
  if (foreign.length === 0) return
  for (const address of foreign) os.network.removeAddress(address)
  // With the first address of a subnet the kernel removes the later ones of it.
  await updateInterface(network, wanted, signal)
}

function canonical(address: string): string {
  return formatIp(parseIp(address) ?? new Uint8Array())
}

/** RT_SCOPE_UNIVERSE; the kernel gives a link its own address of scope `link`. */
const GLOBAL = 0
