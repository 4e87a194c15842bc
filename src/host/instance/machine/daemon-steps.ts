import { createHash } from 'node:crypto'
import { join, relative } from 'node:path'
import type { InstanceRecord } from '../../../gen/microvm/instance/v1/records.ts'
import { type Backends, isOfNetwork } from '../../qemu/machine/as-spec.ts'
import { EXPORTED_DISK } from '../../qemu/machine/provisions.ts'
import type { Backend, NetworkDisk, VmSpec } from '../../spec/spec.ts'
import { OWN_FOLDER } from './instance-files.ts'
import { NETWORK_DISK } from './machine.ts'
import type { PlannedStep } from './steps.ts'
import { confinement, StartOpener } from './walls.ts'

export type ProgramName = 'qemu' | 'virtiofsd' | 'passt' | 'vsock-daemon' | 'storage-daemon'

type DaemonBackend = Extract<Backend, { kind: 'virtiofsd' | 'passt' | 'vsock-daemon' }> | NetworkDisk

interface DaemonPlace {
  readonly host: {
    readonly program: (name: ProgramName) => Promise<string>
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
  const { folder, host, record, secrets } = place
  const steps: PlannedStep[] = []
  const disks = Object.entries(backends).filter(([, backend]) => isOfNetwork(backend))
  for (const [key, backend] of [...Object.entries(spec.backends), ...disks]) {
    if (!isDaemon(backend)) continue
    const name =
      backend.kind === 'vsock-daemon' ? 'vsock' : `${NAMES[backend.kind]}-${shortName(`${folder}/${key}`)}`
    const login = backend.kind === 'network-disk' ? backend.login : undefined
    const secret = login && secrets.get(login.secret)
    const opener = host.walls === undefined || secret === undefined ? undefined : new StartOpener()
    const { socket, args, leftovers } = argumentsOf(backend, name, {
      ...{ ...place, secret: secret && (opener?.read(secret) ?? secret) },
    })
    const program = backend.kind === 'network-disk' ? 'storage-daemon' : backend.kind
    const argv = [await host.program(program), ...args] as const
    const own = [...(opener?.walls ?? []), ...wallsOf(backend, record.uid)]
    const walls = host.walls === undefined ? {} : { walls: own }
    steps.push({ step: 'daemon', words: [key, name, socket, ...leftovers], argv, ...walls })
  }
  return steps
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
  /** Other files that the daemon makes. */
  readonly leftovers: readonly string[]
}

/** The daemon 0.3.0 drops a packet of more than two descriptors, which Linux 6.12 sends above some 32 KiB. */
const VSOCK_BUFFER_BYTES = 28 * 1024

function argumentsOf(
  backend: DaemonBackend,
  name: string,
  place: DaemonPlace & { readonly secret: string | undefined },
): DaemonArguments {
  const { folder, host, record, secret } = place
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
      const disk = { ...serverOf(backend), 'node-name': EXPORTED_DISK, 'read-only': isReadOnly }
      const written = `writable=${isReadOnly ? 'off' : 'on'}`
      const args = [
        ...(secret === undefined ? [] : ['--object', `secret,id=password,file=${secret}`]),
        ...['--blockdev', JSON.stringify(disk), '--nbd-server', `addr.type=unix,addr.path=${at(socket)}`],
        ...['--export', `type=nbd,id=export,node-name=${EXPORTED_DISK},name=${EXPORTED_DISK},${written}`],
      ]
      return { socket, args, leftovers: [] }
    }
    default:
      return backend satisfies never
  }
}

/** How QEMU's block drivers reach the disk. */
function serverOf({ login, url }: NetworkDisk) {
  const password = login && { 'password-secret': 'password' }
  if (url.startsWith('https:'))
    return { driver: 'https', url, ...(login && { username: login.username }), ...password }
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
