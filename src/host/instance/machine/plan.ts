import { createHash } from 'node:crypto'
import { join } from 'node:path'
import { AgentError } from '../../../base/errors.ts'
import { blockDevicesOf } from '../../qemu/block-devices.ts'
import type { Acceleration } from '../../qemu/host.ts'
import { qemuArguments } from '../../qemu/qemu-arguments.ts'
import { specFromProto } from '../../spec/from-proto.ts'
import type { Backend, VmSpec } from '../../spec/spec.ts'
import { specKey } from '../../spec/spec-key.ts'
import type { Plan } from '../instance.ts'
import { QEMU } from './machine.ts'
import type { PlannedStep } from './steps.ts'
import { linksOfTap, wordsOfLinks } from './tap-links.ts'

export interface PlanHost {
  readonly acceleration: Acceleration
  readonly tscKhz: number | undefined
  /** Finds a program. Rejects with UNAVAILABLE. */
  readonly program: (name: 'qemu' | 'virtiofsd' | 'passt' | 'vsock-daemon') => Promise<string>
}

/** What a start makes on this host, in the order of the table of steps. */
export function planFor(host: PlanHost): Plan {
  return async (record, folder) => {
    const { specification } = record
    if (specification === undefined)
      throw new AgentError('FAILED_PRECONDITION', 'specification: not known yet')
    const spec = specFromProto(specification)
    const qmp = join(folder, QEMU.socket)
    const daemons = await daemonSteps(spec, { host, folder, cid: record.cid })
    const sockets = new Map(daemons.map(({ words: [key = '', , socket = ''] }) => [specKey(key), socket]))
    const args = qemuArguments(spec, {
      acceleration: host.acceleration,
      tscKhz: host.tscKhz,
      qmp: { socket: qmp },
      isPaused: true,
      isKept: true,
      sockets,
      cid: record.cid,
      blockDevices: blockDevicesOf(spec),
    })
    return [
      { step: 'folder', words: ['', folder] },
      { step: 'holder', words: ['', folder] },
      ...daemons,
      { step: 'qemu', words: ['', qmp], argv: [await host.program('qemu'), ...args] },
      ...(await tapSteps(spec)),
    ]
  }
}

type DaemonBackend = Extract<Backend, { kind: 'virtiofsd' | 'passt' | 'vsock-daemon' }>

interface DaemonPlace {
  readonly host: PlanHost
  readonly folder: string
  readonly cid: number
}

/** The daemons that serve backends. Each has a name and a socket of its own in the instance's folder. */
async function daemonSteps(spec: VmSpec, place: DaemonPlace): Promise<readonly PlannedStep[]> {
  const steps: PlannedStep[] = []
  for (const [key, backend] of Object.entries(spec.backends)) {
    if (!isDaemon(backend)) continue
    const name = backend.kind === 'vsock-daemon' ? 'vsock' : `${backend.kind}-${shortName(key)}`
    const { socket, args, leftovers } = argumentsOf(backend, name, place)
    const argv = [await place.host.program(backend.kind), ...args] as const
    steps.push({ step: 'daemon', words: [key, name, socket, ...leftovers], argv })
  }
  return steps
}

/** For paths of sockets, which have little room. */
function shortName(key: string): string {
  return createHash('sha256').update(key).digest('hex').slice(0, 8)
}

function isDaemon(backend: Backend): backend is DaemonBackend {
  return backend.kind === 'virtiofsd' || backend.kind === 'passt' || backend.kind === 'vsock-daemon'
}

interface DaemonArguments {
  readonly socket: string
  readonly args: readonly string[]
  /** Other files that the daemon makes. */
  readonly leftovers: readonly string[]
}

/** The daemon 0.3.0 drops a packet of more than two descriptors, which Linux 6.12 sends above some 32 KiB. */
const VSOCK_BUFFER_BYTES = 28 * 1024

function argumentsOf(backend: DaemonBackend, name: string, { folder, cid }: DaemonPlace): DaemonArguments {
  switch (backend.kind) {
    case 'vsock-daemon': {
      const [socket, guest] = [join(folder, 'vhost-user.sock'), join(folder, 'vsock.sock')]
      const vm = `guest-cid=${cid},socket=${socket},uds-path=${guest},tx-buffer-size=${VSOCK_BUFFER_BYTES}`
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
      const socket = join(folder, `${name}.sock`)
      return { socket, args: ['--foreground', '--socket', socket], leftovers: [] }
    }
    default:
      return backend satisfies never
  }
}

/** The file by which QEMU 7.2's virtiofsd locks its socket (tools/virtiofsd/fuse_virtio.c). */
function virtiofsdLock(socket: string): string {
  return `/run/virtiofsd/${socket.replaceAll('/', '.')}.pid`
}

/** The taps, and the links of one that is the only one. */
export async function tapSteps(spec: VmSpec): Promise<readonly PlannedStep[]> {
  const own = await linksOfTap(spec)
  return Object.entries(spec.backends).flatMap(([key, backend]): readonly PlannedStep[] => {
    if (backend.kind !== 'tap') return []
    const links = own?.key === key ? wordsOfLinks(own.links) : []
    return [{ step: 'tap', words: [key, backend.interfaceName, backend.bridge ?? '', ...links] }]
  })
}
