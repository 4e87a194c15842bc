import { join, relative } from 'node:path'
import { AgentError, messageOf } from '../../../base/errors.ts'
import { State } from '../../../gen/microvm/instance/v1/instance.ts'
import type { InstanceRecord } from '../../../gen/microvm/instance/v1/records.ts'
import type { LimitController } from '../../../os/cgroup/limited-cgroups.ts'
import { type HostCpus, memoryNodes } from '../../catalogue/choose-cpus.ts'
import type { Machine } from '../../machine/machine.ts'
import { blockDevicesOf } from '../../qemu/block-devices.ts'
import type { Acceleration } from '../../qemu/host.ts'
import { asSpec, type Backends } from '../../qemu/machine/as-spec.ts'
import { limitedDisks } from '../../qemu/machine/disk-limits.ts'
import { firmwareWords, ovmfOf } from '../../qemu/machine/firmware-words.ts'
import { machineArguments } from '../../qemu/machine/machine-arguments.ts'
import { provisionsFor } from '../../qemu/machine/provisions.ts'
import {
  blockArguments,
  controlArguments,
  OVMF,
  type QemuHost,
  qemuArguments,
  SANDBOX,
} from '../../qemu/qemu-arguments.ts'
import type { Secrets } from '../../secrets/secrets.ts'
import { BACKEND_FIELDS, DEVICE_FIELDS, pathOf } from '../../spec/component-path.ts'
import { specFromProto } from '../../spec/from-proto.ts'
import { secretOfDisk, type VmSpec } from '../../spec/spec.ts'
import { specKey } from '../../spec/spec-key.ts'
import { runningOf, stoppedSpec, zoneSeconds } from '../documents/document-record.ts'
import { volumeField } from '../documents/host-machines.ts'
import { metadataOf } from '../documents/own-files.ts'
import { rulesOf, tableOf } from '../filters/tap-rules.ts'
import { checkInterface, isFull, refuseHosts, refuseUnfenced } from '../leases/check-lease.ts'
import { fencedTap } from '../leases/network-fence.ts'
import type { HostIdentity } from '../leases/volume-daemon.ts'
import { layerFiles } from '../snapshots/layers.ts'
import { daemonSteps, type ProgramName, volumeSteps } from './daemon-steps.ts'
import { OWN_FOLDER, VARIABLES } from './instance-files.ts'
import { cgroupOf } from './limits-of.ts'
import { QEMU } from './machine.ts'
import type { PlannedStep } from './steps.ts'
import { linksOfTap, wordsOfLinks } from './tap-links.ts'
import { confinement, type ProcessUser, StartOpener } from './walls.ts'

/**
 * What a start makes; computed from the record, and from what this host has. `incoming` is a machine that waits for the state of a
 * saved one, `blocks` a QEMU without a machine, which only opens disks.
 */
export type Plan = (
  record: Readonly<InstanceRecord>,
  folder: string,
  what?: 'machine' | 'incoming' | 'blocks',
) => Promise<readonly PlannedStep[]>

export interface PlanHost {
  readonly acceleration: Acceleration
  readonly tscKhz: number | undefined
  /** Whether machines outlive this process. */
  readonly isKept: boolean
  /** Finds a program. Rejects with UNAVAILABLE. */
  readonly program: (name: ProgramName) => Promise<string>
  /** Without them an encrypted disk is refused. */
  readonly secrets?: Pick<Secrets, 'file'> | undefined
  /** Undefined: the processes have all that the daemon has. */
  readonly walls?: WallFacts | undefined
  /** What the processes can be limited by; undefined where nothing is to be. */
  readonly cgroups?: ReadonlySet<LimitController> | undefined
  /** Where the only machine of a process keeps UEFI's variables; by default they go with the instance. */
  readonly variables?: string | undefined
  /** Whether a document's metadata are the host's own, so that a tap has the address of its peer. */
  readonly isLinked?: boolean | undefined
  /** The CPUs of each NUMA node. */
  readonly nodes?: HostCpus['nodes']
  /** By what this host is known to others. */
  readonly identity?: HostIdentity | undefined
}

/** What walls depend on. */
export interface WallFacts {
  /** Who may open /dev/kvm: all users, a group, or only root. */
  readonly kvm: 'all' | 'root' | number
}

/** What a start makes on this host, in the order of the table of steps. */
export function planFor(host: PlanHost): Plan {
  return async (record, folder, what = 'machine') => {
    const hardware = hardwareOf(record, what === 'incoming')
    const { spec } = hardware
    const qmp = join(folder, QEMU.socket)
    const isMachine = what !== 'blocks'
    const secrets = isMachine ? await secretsOf(hardware, host, record) : await layerSecrets(host, record)
    const daemons = isMachine ? await daemonSteps(hardware, { host, folder, record, secrets }) : []
    const volumes =
      isMachine && isFull(record.properties?.lease) ? await volumesOf(hardware, { host, folder, record }) : []
    if (volumes.length === 0) refuseHosts(spec)
    const { walls } = host
    const pathFor = (socket: string) => (walls === undefined ? socket : relative(folder, socket))
    const variables = host.variables ?? join(folder, VARIABLES)
    const socketsOf = (steps: readonly PlannedStep[]) =>
      new Map(steps.map(({ words: [key = '', , path = ''] }) => [specKey(key), pathFor(path)] as const))
    const facts = {
      acceleration: host.acceleration,
      tscKhz: host.tscKhz,
      isPaused: true,
      isKept: host.isKept,
      sockets: socketsOf(daemons),
      servedDisks: socketsOf(volumes),
      cid: record.cid,
      generationId: record.generationId || undefined,
      layers: layerFiles(record, folder),
      blockDevices: blockDevicesOf(spec),
      variables,
      secrets,
    }
    const program = await host.program('qemu')
    const place = { folder, pathFor, pinned: record.pinnedCpus, nodes: host.nodes ?? new Map() }
    const argumentsFor = (qemuHost: QemuHost) =>
      isMachine
        ? [...wordsFor(hardware, { ...qemuHost, ...place }), ...(what === 'incoming' ? INCOMING : [])]
        : blockArguments(qemuHost)
    const qemu =
      walls === undefined
        ? { argv: [program, ...argumentsFor({ ...facts, qmp: { socket: qmp } })] as const }
        : walledQemu(program, argumentsFor, facts, qemuUser(spec, { ...host, walls }, record.uid))
    const cgroup = cgroupOf(spec, host, folder)
    const names = cgroup === undefined ? [] : [cgroup.words[1]]
    return [
      { step: 'folder', words: ['', folder], ...(hardware.machine && { machine: hardware.machine }) },
      ...variablesSteps(hardware, variables),
      ...(cgroup === undefined ? [] : [cgroup]),
      { step: 'holder', words: ['', folder, ...names] },
      ...(isMachine && isFull(record.properties?.lease) ? [{ step: 'lease', words: [''] } as const] : []),
      ...volumes,
      ...daemons,
      { step: 'qemu', words: ['', qmp], secrets, ...qemu },
      ...(record.pinnedCpus.length === 0
        ? []
        : [{ step: 'cpus', words: ['', record.pinnedCpus.join(',')] } as const]),
      ...throttleSteps(hardware),
      ...balloonSteps(hardware),
      ...(await passwordSteps(hardware, host, record)),
      ...(isMachine
        ? [
            ...(isFull(record.properties?.lease) ? fenceSteps(spec, folder) : []),
            ...filterSteps(spec, folder),
            ...(await tapSteps(hardware.machine ? withoutItems(spec) : spec, ownMetadata(hardware, host))),
          ]
        : []),
    ]
  }
}

/** The state of a saved machine is given later. */
const INCOMING = ['-incoming', 'defer']

/** Words of the step are an empty one, the file, and what it is a copy of. */
function variablesSteps({ spec, machine }: Hardware, path: string): readonly PlannedStep[] {
  if (spec.board.firmware !== 'uefi') return []
  const { variables } = machine === undefined ? OVMF : ovmfOf(machine)
  return [{ step: 'variables', words: ['', path, variables] }]
}

/** What an instance has: a specification; or an expanded machine, of which `spec` is what a specification has words for. */
interface Hardware {
  readonly spec: VmSpec
  readonly machine?: Machine
  readonly backends?: Backends
}

function hardwareOf(record: Readonly<InstanceRecord>, isIncoming: boolean): Hardware {
  const { document, specification, privateMemory: path } = record
  const memory = isIncoming && path !== '' ? { memory: { path } } : {}
  if (document === undefined) {
    if (specification !== undefined) return { spec: { ...specFromProto(specification), ...memory } }
    throw new AgentError('FAILED_PRECONDITION', 'specification: not known yet')
  }
  if (document.current === '') return { spec: stoppedSpec(record) }
  const { backends, machine } = runningOf(record)
  return { spec: { ...asSpec(machine, backends), ...memory }, machine, backends }
}

function throttleSteps({ machine, backends = {} }: Hardware): readonly PlannedStep[] {
  const disks = machine === undefined ? [] : limitedDisks(machine, backends)
  return disks.map(({ backend, bytesPerSecond, device, iops }) => ({
    ...{ step: 'throttle', words: [backend, device, String(iops), String(bytesPerSecond)] },
  }))
}

function balloonSteps({ machine }: Hardware): readonly PlannedStep[] {
  if (machine === undefined || machine.memory.currentMib === machine.memory.sizeMib) return []
  // One that was recorded before it was refused, or whose balloon was unplugged: its guest has all memory.
  if (!Object.values(machine.devices).some(({ kind }) => kind === 'balloon')) return []
  return [{ step: 'balloon', words: ['', String(machine.memory.currentMib * 2 ** 20)] }]
}

async function passwordSteps(
  { machine }: Hardware,
  host: PlanHost,
  record: Readonly<InstanceRecord>,
): Promise<readonly PlannedStep[]> {
  const passwords = Object.entries(record.document?.passwords ?? {})
  const steps = passwords.map(async ([key, uuid]): Promise<PlannedStep> => {
    const { kind = '', options } = machine?.backends[key] ?? {}
    // As libvirt has it, in UTC.
    const end = options?.passwordValidTo
    const time = end === undefined ? 'never' : `${Date.parse(`${end}Z`) / 1000}`
    const file = await secretFile(host, record, { uuid, path: pathOf('backends', key, 'password') })
    return { step: 'password', words: [key, kind, time, file] }
  })
  return await Promise.all(steps)
}

type MachinePlace = QemuHost & {
  readonly folder: string
  readonly pathFor: (path: string) => string
  readonly pinned: readonly number[]
  readonly nodes: HostCpus['nodes']
}

function wordsFor({ spec, machine, backends = {} }: Hardware, host: MachinePlace) {
  if (machine === undefined) return qemuArguments(spec, host)
  const ownFile = (name: string) => host.pathFor(join(host.folder, OWN_FOLDER, name))
  const { variables = '' } = host
  const words = machineArguments(machine, {
    ...{ acceleration: host.acceleration, nowMs: Date.now(), zoneSeconds: zoneSeconds(), isShared: true },
    memoryNodes: memoryNodes(machine, host.pinned, host),
    ...{ memory: spec.memory, opener: host.opener, generationId: host.generationId },
    provide: provisionsFor(machine, backends, { ...host, ownFile }),
    firmwareWords: firmwareWords(machine, backends, { ...host, variables }),
  })
  return [...SANDBOX, ...words, ...controlArguments(host.qmp)]
}

/** The files of the secrets by which the disks of the tenant's machine are opened, by their UUIDs. */
async function secretsOf(
  { spec, backends = {} }: Hardware,
  host: PlanHost,
  record: Readonly<InstanceRecord>,
): Promise<ReadonlyMap<string, string>> {
  const files = new Map<string, string>()
  const all: Backends = { ...backends, ...spec.backends }
  for (const [key, backend] of Object.entries(all)) {
    const [uuid, ...fields] =
      backend.kind === 'network-disk'
        ? [secretOfDisk(backend), 'secret']
        : backend.kind === 'file'
          ? [backend.encryption?.secret, BACKEND_FIELDS.file, 'encryption', 'secret']
          : []
    if (uuid === undefined) continue
    files.set(
      uuid,
      await secretFile(host, record, { uuid, path: volumeField(record.document, key, ...fields) }),
    )
  }
  return files
}

/** Those of the disks with layers; '' for one that is not there. */
async function layerSecrets(
  host: PlanHost,
  record: Readonly<InstanceRecord>,
): Promise<ReadonlyMap<string, string>> {
  const encrypted = record.layers.filter(({ secret }) => secret !== '')
  const files = encrypted.map(async ({ backend, secret }) => {
    const path = volumeField(record.document, backend)
    return [secret, await secretFile(host, record, { uuid: secret, path }).catch(() => '')] as const
  })
  return new Map(await Promise.all(files))
}

/** The file of a secret that the field at `path` names. */
async function secretFile(
  { secrets }: PlanHost,
  { current, document, properties }: Readonly<InstanceRecord>,
  { uuid, path }: { readonly uuid: string; readonly path: string },
): Promise<string> {
  const tenant = properties?.tenant ?? ''
  // The names in a document lead to secrets by the administrator's catalogue.
  const owners = document === undefined ? [tenant] : [tenant, '']
  if (secrets === undefined) throw new AgentError('FAILED_PRECONDITION', `${path}: no secrets here`)
  return await fileOf(secrets, owners, uuid).catch((error) => {
    // A machine that runs has read it, and it may be forgotten by now.
    if (current === State.PAUSED || current === State.RUNNING) return ''
    throw new AgentError('FAILED_PRECONDITION', `${path}: ${messageOf(error)}`, { cause: error })
  })
}

async function fileOf(
  secrets: Pick<Secrets, 'file'>,
  [owner = '', ...others]: readonly string[],
  uuid: string,
): Promise<string> {
  return await secrets.file(owner, uuid).catch((error) => {
    if (others.length === 0) throw error
    return fileOf(secrets, others, uuid)
  })
}

/** QEMU reaches its sockets from its working directory, the instance's folder, because it may not pass those above. */
function walledQemu(
  program: string,
  argumentsFor: (host: QemuHost) => readonly string[],
  facts: Omit<QemuHost, 'qmp'>,
  user: ProcessUser,
) {
  const opener = new StartOpener()
  const qmp = { fd: opener.listener(QEMU.socket), listens: true } as const
  const args = argumentsFor({ ...facts, qmp, opener })
  const walls = [...opener.walls, ...confinement(user)]
  return { argv: [program, ...opener.args, ...args] as const, walls }
}

/** QEMU is the daemon's user where it serves a folder itself, and where only root may use KVM. */
function qemuUser(
  { backends }: VmSpec,
  { walls, acceleration }: PlanHost & { readonly walls: WallFacts },
  uid: number,
): ProcessUser {
  const kvm = acceleration === 'kvm' ? walls.kvm : 'all'
  const needsRoot = kvm === 'root' || Object.values(backends).some(({ kind }) => kind === 'folder')
  return { uid: needsRoot ? 0 : uid, groups: typeof kvm === 'number' ? [kvm] : [] }
}

/** The disks that are fenced. Refuses what else goes on after the end of the lease. */
async function volumesOf(
  { spec, backends }: Hardware,
  place: Parameters<typeof volumeSteps>[1],
): Promise<readonly PlannedStep[]> {
  const steps = backends === undefined ? await volumeSteps(spec, place) : []
  const fenced = steps.map(({ words: [key = ''] }) => key)
  const all: Backends = { ...spec.backends, ...backends }
  const others = Object.entries(all).filter(([key]) => !fenced.includes(key))
  refuseUnfenced(Object.fromEntries(others))
  return steps
}

function fenceSteps({ devices, backends }: VmSpec, folder: string): readonly PlannedStep[] {
  return Object.values(devices).flatMap((device): readonly PlannedStep[] => {
    const backend = device.kind === 'nic' ? backends[device.backend] : undefined
    if (device.kind !== 'nic' || backend?.kind !== 'tap') return []
    checkInterface(device.backend, backend.interfaceName)
    const { table, interfaceName } = fencedTap(folder, device.backend, backend.interfaceName)
    return [{ step: 'fence', words: [device.backend, table, interfaceName] }]
  })
}

/** The rules of the taps that have filters. */
export function filterSteps({ devices, backends }: VmSpec, folder: string): readonly PlannedStep[] {
  return Object.entries(devices).flatMap(([key, device]): readonly PlannedStep[] => {
    const backend = device.kind === 'nic' ? backends[device.backend] : undefined
    if (device.kind !== 'nic' || !device.filters?.length || backend?.kind !== 'tap') return []
    const table = tableOf(folder, device.backend)
    const ruleset = rulesOf({ table, interfaceName: backend.interfaceName, card: device })
    const path = pathOf('devices', key, DEVICE_FIELDS.nic, 'filters')
    return [{ step: 'filter', words: [device.backend, table], filter: { path, ruleset } }]
  })
}

/** Elsewhere the addresses in the metadata of a document are the guest's own matter. */
function ownMetadata({ machine }: Hardware, { isLinked }: PlanHost): Uint8Array | undefined {
  return machine && isLinked ? metadataOf(machine) : undefined
}

function withoutItems(spec: VmSpec): VmSpec {
  const devices = Object.entries(spec.devices).filter(([, { kind }]) => kind !== 'fw-cfg')
  return { ...spec, devices: Object.fromEntries(devices) }
}

/** The taps, and the links of one that is the only one. */
export async function tapSteps(spec: VmSpec, metadata?: Uint8Array): Promise<readonly PlannedStep[]> {
  const own = await linksOfTap(spec, metadata)
  return Object.entries(spec.backends).flatMap(([key, backend]): readonly PlannedStep[] => {
    if (backend.kind !== 'tap') return []
    const links = own?.key === key ? wordsOfLinks(own.links) : []
    const words = [key, backend.interfaceName, backend.bridge ?? '', ...links]
    const card = Object.values(spec.devices).find((each) => each.kind === 'nic' && each.backend === key)
    return [{ step: 'tap', words, ...(card?.kind === 'nic' && { mac: card.mac }) }]
  })
}
