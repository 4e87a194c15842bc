import { withTimeout } from '../../base/abort.ts'
import { AgentError, messageOf } from '../../base/errors.ts'
import {
  BackendStatus,
  type DeviceStatus,
  BackendStatus_Health as Health,
  type Instance,
  DeviceStatus_Plug as Plug,
  State,
} from '../../gen/microvm/instance/v1/instance.ts'
import type { InstanceRecord } from '../../gen/microvm/instance/v1/records.ts'
import { notGiven } from '../qemu/machine/provisions.ts'
import type { BlockGraph } from '../qemu/qmp/commands.ts'
import { qemuId, specKey } from '../spec/spec-key.ts'
import { servedDisks } from './devices/disk-in-use.ts'
import { configurationsOf, machinesOf, runningOf } from './documents/document-record.ts'
import type { WantedInstance } from './documents/wanted-instance.ts'
import { answer } from './holder/ask-holder.ts'
import type { HeldChild } from './holder/holder.ts'
import type { MachineInstance } from './instance.ts'
import type { Caller } from './instances.ts'
import { OWN_FOLDER } from './machine/instance-files.ts'
import { type Machine, QEMU } from './machine/machine.ts'
import { instanceOf, NO_GENERATION_ID } from './record/instance-record.ts'
import { diskNode } from './snapshots/layers.ts'

/** The instance as its record, QEMU and its holder tell of it. Must not be called in a change. */
export async function describeInstance(instance: MachineInstance): Promise<Instance> {
  const { machine } = instance.context
  // A stopped instance may have a QEMU that only opens its disks.
  if (machine === undefined || instance.record.current === State.STOPPED) return describe(instance, undefined)
  try {
    return describe(instance, await factsOf(instance, machine))
  } catch (error) {
    if (!(error instanceof AgentError) || !LOST.includes(error.code)) throw error
    // The machine has just ended, or is being ended. The record tells of it after that change.
    const { clock, limits } = instance.context
    await withTimeout(clock, 2 * limits.exitMs, machine.gone, () => error)
    await instance.settled()
    return await describeInstance(instance)
  }
}

/** How calls to QEMU and its holder fail when these end. */
const LOST: readonly string[] = ['UNAVAILABLE', 'ABORTED']

/**
 * The present instance once its changes are over; undefined when it could not be made. Throws when it is another one than is asked
 * for.
 */
export async function describeEqual(
  known: MachineInstance,
  wanted: Pick<WantedInstance, 'differenceTo'>,
  caller: Pick<Caller, 'inStep' | 'signal' | 'tenant'>,
): Promise<Instance | undefined> {
  const { key, record } = known
  if (!isVisible(known, caller)) throw new AgentError('ALREADY_EXISTS', `instance ${key}: the key is taken`)
  const difference = wanted.differenceTo(record)
  if (difference !== undefined)
    throw new AgentError(
      'FAILED_PRECONDITION',
      `instance ${key}: ${difference}: differs from the present one`,
    )
  caller.inStep('waiting for the changes before')
  try {
    await known.change(async () => {}, caller.signal)
    return await describeInstance(known)
  } catch (error) {
    if (known.isForgotten) return undefined
    throw error
  }
}

export function isVisible({ record }: MachineInstance, { tenant }: Pick<Caller, 'tenant'>): boolean {
  return tenant === undefined || record.properties?.tenant === tenant
}

function describe(instance: MachineInstance, facts: Facts | undefined): Instance {
  const { machine } = instance.context
  const { operations, specification } = instance.record
  const described = { ...instanceOf(instance.record), ...documentOf(instance), operations }
  if (specification === undefined) return described
  const { children = [] } = facts ?? {}
  return {
    ...described,
    backends: mapValues({ ...specification.backends, ...servedDisks(instance.record.document) }, (key) =>
      facts === undefined ? { ...UNKNOWN, health: Health.UNUSED } : backendStatus(instance, key, facts),
    ),
    devices: devicesOf(instance.record),
    runValues: facts === undefined ? {} : runValuesOf(instance.record),
    holderPid: machine?.holder.pid ?? 0,
    qemuPid: children.find(({ name, exit }) => name === QEMU.child && exit === undefined)?.pid ?? 0,
  }
}

/** What an instance that was made of a document has besides. */
function documentOf({ record }: MachineInstance): Partial<Instance> {
  const machines = machinesOrFault(record)
  if (machines === undefined) return {}
  const configurations = configurationsOf(record)
  if (typeof machines === 'string') return { configurations, warnings: [machines] }
  const machine = machines.current ?? machines.saved
  const own = machine.board.machine === 'microvm' ? [NO_GENERATION_ID] : []
  return { configurations, warnings: [...machine.notes, ...notGiven(machine), ...own] }
}

/** The sentence is why this version does not read them. */
function machinesOrFault(record: Readonly<InstanceRecord>): ReturnType<typeof machinesOf> | string {
  try {
    return machinesOf(record)
  } catch (error) {
    return messageOf(error)
  }
}

/** What was chosen for the machine that runs. Its sockets are in the instance's folder. */
function runValuesOf(record: Readonly<InstanceRecord>): Record<string, string> {
  const { pinnedCpus } = record
  const pinned = pinnedCpus.length === 0 ? {} : { cpus: pinnedCpus.join(',') }
  if (!record.document?.current || typeof machinesOrFault(record) === 'string') return pinned
  const { backends, machine } = runningOf(record)
  const taps = Object.entries(backends).flatMap(([key, backend]) =>
    backend.kind === 'tap' ? [[key, backend.interfaceName]] : [],
  )
  const sockets = Object.entries(machine.backends).flatMap(([key, { kind }]) =>
    ['socket', 'spice', 'vnc'].includes(kind) ? [[key, `${OWN_FOLDER}/${key}.sock`]] : [],
  )
  return { ...pinned, ...Object.fromEntries([...taps, ...sockets]) }
}

function devicesOf(record: Readonly<InstanceRecord>): Record<string, DeviceStatus> {
  const { leaving, leavingMs, specification } = record
  const machines = machinesOrFault(record)
  const isRead = machines !== undefined && typeof machines !== 'string'
  const devices: Readonly<Record<string, unknown>> =
    (isRead ? machines.current : specification)?.devices ?? {}
  return mapValues(devices, (key) =>
    leaving.includes(key) ? { plug: Plug.LEAVING, leavingMs: leavingMs[key] } : { plug: Plug.PRESENT },
  )
}

const UNKNOWN: BackendStatus = BackendStatus.create()

interface Facts {
  readonly nodes: ReadonlyMap<string, number>
  readonly jobs: readonly { readonly device: string; readonly type: string }[]
  readonly graph: BlockGraph
  readonly children: readonly HeldChild[]
}

async function factsOf(instance: MachineInstance, { qmp, holder }: Machine): Promise<Facts> {
  const { ending } = instance
  const [nodes, jobs, graph, children] = await Promise.all([
    qmp.execute('query-named-block-nodes', { flat: true }, ending),
    qmp.execute('query-block-jobs', {}, ending),
    qmp.execute('x-debug-query-block-graph', {}, ending),
    answer(instance.context, holder.children()),
  ])
  const sizes = nodes.map((node) => [node['node-name'], node.image['virtual-size']] as const)
  return { nodes: new Map(sizes), jobs, graph, children }
}

function backendStatus(instance: MachineInstance, key: string, facts: Facts): BackendStatus {
  const { document, specification } = instance.record
  const backend = specification?.backends[key]
  const daemon = instance.recorded.steps.find(
    ({ step, words }) => ['daemon', 'volume'].includes(step) && words[0] === key,
  )
  const process = facts.children.findLast(({ name }) => name === daemon?.words[1])
  const isDead = process?.exit !== undefined
  const health = isDead ? Health.DEAD : Health.READY
  const isDisk = Object.values(specification?.devices ?? {}).some(
    (device) => device.disk !== undefined && device.backend === key,
  )
  const isServed = servedDisks(document)[key] !== undefined
  if (!isServed && (backend?.file === undefined || !isDisk))
    return { ...UNKNOWN, health, node: qemuId(specKey(key)) }
  const node = diskNode(instance.record, key)
  const size = facts.nodes.get(node)
  return {
    health: size === undefined ? Health.DEAD : health,
    node,
    sizeBytes: BigInt(size ?? 0),
    locks: locksOf(node, facts.graph),
    jobs: jobsOn(node, facts),
    lastError: instance.diskErrors.get(node) ?? '',
  }
}

/** The rights by which others are kept from the file, as the node's users have them. */
const LOCKS = ['write', 'resize']

function locksOf(node: string, { nodes, edges }: BlockGraph): string[] {
  const id = nodes.find(({ type, name }) => type === 'block-driver' && name === node)?.id
  const rights = edges.flatMap(({ child, perm }) => (child === id ? perm : []))
  return LOCKS.filter((right) => rights.includes(right))
}

/** The kinds of the jobs that use the node or one below it. */
function jobsOn(node: string, { graph, jobs }: Facts): string[] {
  return jobs.flatMap(({ device, type }) => {
    const used = belowOf(graph, 'block-job', device)
    return [...belowOf(graph, 'block-driver', node)].some((id) => used.has(id)) ? [type] : []
  })
}

/** The ids of a node and of all below it. */
function belowOf(
  { nodes, edges }: BlockGraph,
  kind: BlockGraph['nodes'][0]['type'],
  name: string,
): Set<number> {
  const below = new Set(nodes.flatMap((node) => (node.type === kind && node.name === name ? [node.id] : [])))
  // A set is walked with what is added to it meanwhile.
  for (const id of below) for (const { parent, child } of edges) if (parent === id) below.add(child)
  return below
}

function mapValues<V, R>(
  record: Readonly<Record<string, V>>,
  make: (key: string, value: V) => R,
): Record<string, R> {
  return Object.fromEntries(Object.entries(record).map(([key, value]) => [key, make(key, value)]))
}
