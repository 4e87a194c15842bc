import { createHash } from 'node:crypto'
import { join, relative } from 'node:path'
import type { InstanceRecord } from '../../../gen/microvm/instance/v1/records.ts'
import { RECONNECT_SECONDS, SERVED_DISK } from '../../qemu/device-parts.ts'
import { type Backends, isOfNetwork } from '../../qemu/machine/as-spec.ts'
import { type Backend, type NetworkDisk, nbdServerOf, secretOfDisk, type VmSpec } from '../../spec/spec.ts'
import type { HostIdentity } from '../leases/volume-daemon.ts'
import type { Reach } from '../leases/volumes.ts'
import { OWN_FOLDER } from './instance-files.ts'
import { NETWORK_DISK } from './machine.ts'
import type { PlannedStep } from './steps.ts'
import { confinement, StartOpener } from './walls.ts'

export type ProgramName = 'qemu' | 'virtiofsd' | 'passt' | 'vsock-daemon' | 'storage-daemon'

/** The name of vhost-device-vsock as a child of the holder. */
export const VSOCK_CHILD = 'vsock'

type DaemonBackend = Extract<Backend, { kind: 'virtiofsd' | 'passt' | 'vsock-daemon' }> | NetworkDisk

interface DaemonPlace {
  readonly host: {
    readonly program: (name: ProgramName) => Promise<string>
    /** By what this host is known to others. */
    readonly identity?: HostIdentity | undefined
    /** Undefined: the daemons have all that this one has. */
    readonly walls?: object | undefined
  }
  readonly folder: string
  readonly record: Readonly<InstanceRecord>
  /** The files of secrets, by their UUIDs. */
  readonly secrets: ReadonlyMap<string, string>
}

/** The daemons that serve backends. Each has a name and a socket of its own in the instance's folder. */
export async function daemonSteps(
  { spec, backends = {} }: { readonly spec: VmSpec; readonly backends?: Backends },
  place: DaemonPlace,
): Promise<readonly PlannedStep[]> {
  const { folder, host, record } = place
  const steps: PlannedStep[] = []
  const disks = Object.entries(backends).filter(([, backend]) => isOfNetwork(backend))
  for (const [key, backend] of [...Object.entries(spec.backends), ...disks]) {
    if (!isDaemon(backend)) continue
    const name =
      backend.kind === 'vsock-daemon'
        ? VSOCK_CHILD
        : `${NAMES[backend.kind]}-${shortName(`${folder}/${key}`)}`
    const opener = host.walls === undefined ? undefined : new StartOpener()
    const read = (path: string) => opener?.read(path) ?? path
    const { socket, args, leftovers, links } = argumentsOf(backend, name, { ...place, read })
    const program = backend.kind === 'network-disk' ? 'storage-daemon' : backend.kind
    const argv = [await host.program(program), ...args] as const
    const own = [...(opener?.walls ?? []), ...wallsOf(backend, record.uid)]
    const walls = host.walls === undefined ? {} : { walls: own }
    const words = [key, name, socket, ...leftovers]
    steps.push({ step: 'daemon', words, argv, ...walls, ...(links && { links }) })
  }
  return steps
}

/** Of the disks of a machine with LM_FULL_LEASES. Words are as those of a daemon; one that another host has is served here, too. */
export async function volumeSteps(
  { backends }: Pick<VmSpec, 'backends'>,
  { folder, host, record }: Omit<DaemonPlace, 'secrets'>,
): Promise<readonly PlannedStep[]> {
  const program = await host.program('storage-daemon')
  return Object.entries(backends).flatMap(([key, backend]): readonly PlannedStep[] => {
    if (backend.kind !== 'file' || backend.access !== 'read-write') return []
    const name = `${NETWORK_DISK}-${shortName(`${folder}/${key}`)}`
    const socket = join(folder, OWN_FOLDER, `${name}.sock`)
    const words = [key, name, socket, `${join(folder, `${name}.tls`)}/`]
    const standIn = (size: number) => {
      const zeros = { driver: 'null-co', 'node-name': SERVED_DISK, size, 'read-zeroes': true }
      const at = host.walls === undefined ? socket : relative(folder, socket)
      const argv = [program, ...serverWords(zeros, at, true)] as const
      return { argv, ...(host.walls && { walls: confinement({ uid: record.uid, groups: [] }) }) }
    }
    if (backend.host === undefined) return [{ step: 'volume', words, server: { standIn } }]
    const { host: server } = backend
    const to = ({ address, port, name: disk }: Reach) => {
      const opener = new StartOpener()
      const read = (path: string) => (host.walls === undefined ? path : opener.read(path))
      const { ca = '', cert = '', key: own = '' } = host.identity ?? {}
      const url = `nbds://${address.includes(':') ? `[${address}]` : address}:${port}/${disk}`
      const served = { kind: 'network-disk', url, access: 'read-write', tls: { ca, name: server } } as const
      const place = { folder, host, record, read, secrets: new Map(), identity: { cert, key: own } }
      const { args, links } = argumentsOf(served, name, place)
      const walls =
        host.walls === undefined ? {} : { walls: [...opener.walls, ...wallsOf(served, record.uid)] }
      return { argv: [program, ...args] as const, ...walls, ...(links && { links }) }
    }
    return [{ step: 'volume', words, server: { standIn, bridge: { host: server, to } } }]
  })
}

const NAMES = { virtiofsd: 'virtiofsd', passt: 'passt', 'network-disk': NETWORK_DISK } as const

/** virtiofsd makes files of all users. It and passt, which is in the host's network, have walls of their own. */
function wallsOf({ kind }: DaemonBackend, uid: number): readonly string[] {
  if (kind === 'virtiofsd') return []
  const isOfNetwork = kind === 'passt' || kind === 'network-disk'
  const hidden = kind === 'network-disk' && uid !== 0 ? ['processes=own'] : []
  return [...hidden, ...confinement({ uid, groups: [] }, isOfNetwork)]
}

/** For paths of sockets, which have little room. /proc/net/unix shows those of all instances, from their folders on. */
function shortName(key: string): string {
  return createHash('sha256').update(key).digest('hex').slice(0, 8)
}

function isDaemon(backend: Backend | NetworkDisk): backend is DaemonBackend {
  return ['virtiofsd', 'passt', 'vsock-daemon', 'network-disk'].includes(backend.kind)
}

interface DaemonArguments {
  readonly socket: string
  readonly args: readonly string[]
  /** Other files that are made for the daemon or by it; a folder ends in a slash. */
  readonly leftovers: readonly string[]
  readonly links?: PlannedStep['links']
}

/** The daemon 0.3.0 drops a packet of more than two descriptors, which Linux 6.12 sends above some 32 KiB. */
const VSOCK_BUFFER_BYTES = 28 * 1024

function argumentsOf(
  backend: DaemonBackend,
  name: string,
  place: DaemonPlace & {
    /** By what name the daemon opens a file. */
    readonly read: (path: string) => string
    /** By what a server of TLS knows this host, in place of a secret. */
    readonly identity?: Pick<HostIdentity, 'cert' | 'key'>
  },
): DaemonArguments {
  const { folder, host, identity, read, record, secrets } = place
  const own = join(folder, OWN_FOLDER)
  const at = (path: string) => (host.walls === undefined ? path : relative(folder, path))
  switch (backend.kind) {
    case 'vsock-daemon': {
      const [socket, guest] = [join(own, 'vhost-user.sock'), guestSocket(folder)]
      const vm = `guest-cid=${record.cid},socket=${at(socket)},uds-path=${at(guest)},tx-buffer-size=${VSOCK_BUFFER_BYTES}`
      return { socket, args: ['--vm', vm], leftovers: [guest] }
    }
    case 'virtiofsd': {
      const socket = join(folder, `${name.replace('virtiofsd', 'fs')}.sock`)
      const args = [
        `--socket-path=${socket}`,
        '-o',
        `source=${backend.path}`,
        '-o',
        'xattr',
        '-o',
        'cache=auto',
      ]
      return { socket, args, leftovers: [virtiofsdLock(socket)] }
    }
    case 'passt': {
      const socket = join(own, `${name}.sock`)
      return { socket, args: ['--foreground', ...PASST_OPTIONS, '--socket', at(socket)], leftovers: [] }
    }
    case 'network-disk': {
      const socket = join(own, `${name}.sock`)
      const isReadOnly = backend.access === 'read-only'
      const waits = identity && { 'reconnect-delay': RECONNECT_SECONDS }
      const disk = { ...serverOf(backend), ...waits, 'node-name': SERVED_DISK, 'read-only': isReadOnly }
      const file = secrets.get(secretOfDisk(backend) ?? '')
      const secret = file === undefined ? undefined : read(file)
      const client = identity
        ? { cert: read(identity.cert), key: read(identity.key) }
        : secret && { cert: secret, key: secret }
      const links = backend.tls && linksOf(join(folder, `${name}.tls`), read(backend.tls.ca), client)
      const objects = links
        ? [`tls-creds-x509,id=${CREDENTIALS},endpoint=client,verify-peer=on,dir=${at(links.folder)}`]
        : secret === undefined
          ? []
          : [`secret,id=${PASSWORD},file=${secret}`]
      const args = [
        ...objects.flatMap((object) => ['--object', object]),
        ...serverWords(disk, at(socket), !isReadOnly),
      ]
      return { socket, args, leftovers: links ? [`${links.folder}/`] : [], ...(links && { links }) }
    }
    default:
      return backend satisfies never
  }
}

/** Words of a storage daemon that has one disk for QEMU. */
function serverWords(disk: object, socket: string, isWritable: boolean): readonly string[] {
  const written = `writable=${isWritable ? 'on' : 'off'}`
  return [
    ...['--blockdev', JSON.stringify(disk), '--nbd-server', `addr.type=unix,addr.path=${socket}`],
    ...['--export', `type=nbd,id=export,node-name=${SERVED_DISK},name=${SERVED_DISK},${written}`],
  ]
}

/** Names of the storage daemon's objects. */
const PASSWORD = 'password'
const CREDENTIALS = 'tls'

/** QEMU reads certificates by these names in a folder (its manual, "TLS setup for network services"). */
function linksOf(folder: string, ca: string, client: Pick<HostIdentity, 'cert' | 'key'> | undefined | '') {
  const own = client ? { 'client-cert.pem': client.cert, 'client-key.pem': client.key } : {}
  return { folder, targets: { 'ca-cert.pem': ca, ...own } }
}

/** How QEMU's block drivers reach the disk. */
function serverOf({ login, tls, url }: NetworkDisk) {
  const password = login && { 'password-secret': PASSWORD }
  if (url.startsWith('https:'))
    return { driver: 'https', url, ...(login && { username: login.username }), ...password }
  if (url.startsWith('nbds:')) {
    const { host, name, port } = nbdServerOf(url)
    const server = { type: 'inet', host, port: `${port}` }
    const checked = { 'tls-creds': CREDENTIALS, 'tls-hostname': tls?.name ?? host }
    return { driver: 'nbd', server, export: name, ...checked }
  }
  const [portal = '', target = '', lun] = url.replace('iscsi://', '').split('/')
  const at = { transport: 'tcp', portal, target, lun: Number(lun) }
  return { driver: 'iscsi', ...at, ...(login && { user: login.username }), ...password }
}

/** By default the address of the gateway leads the guest to the ports of this host's loopback. */
const PASST_OPTIONS = ['--no-map-gw']

/** Where vhost-device-vsock listens for connections to the guest; `_PORT` at its end makes those of the host's ports. */
export function guestSocket(folder: string): string {
  return join(folder, OWN_FOLDER, 'vsock.sock')
}

/** The file by which QEMU 7.2's virtiofsd locks its socket (tools/virtiofsd/fuse_virtio.c). */
function virtiofsdLock(socket: string): string {
  return `/run/virtiofsd/${socket.replaceAll('/', '.')}.pid`
}
