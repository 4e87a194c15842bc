import { AgentError } from '../../../base/errors.ts'
import type { PlugRequest, Specification } from '../../../gen/microvm/instance/v1/instance.ts'
import type { InstanceRecord } from '../../../gen/microvm/instance/v1/records.ts'
import { parseYaml } from '../../machine/document/parse-yaml.ts'
import type { Machine } from '../../machine/machine.ts'
import { withoutMachineDevices, withPlugged, withVsock } from '../../machine/plugged.ts'
import { asSpec, type Backends } from '../../qemu/machine/as-spec.ts'
import { machineDeviceParts } from '../../qemu/machine/machine-arguments.ts'
import { provisionsFor } from '../../qemu/machine/provisions.ts'
import type { Part } from '../../qemu/parts.ts'
import type { PartsHost } from '../../qemu/parts-host.ts'
import { pathOf } from '../../spec/component-path.ts'
import { backendFromProto } from '../../spec/from-proto.ts'
import type { VmSpec } from '../../spec/spec.ts'
import { specToProto } from '../../spec/to-proto.ts'
import { withoutDevices } from '../devices/specification.ts'
import type { MachineInstance } from '../instance.ts'
import { leftVsock, machinesOf, runningOf } from './document-record.ts'
import type { HostMachines } from './host-machines.ts'

/** A device before it is plugged in. */
export interface PlannedDevice {
  readonly spec: VmSpec
  readonly specification: Specification
  /** Key of its backend. */
  readonly backend: string
  /** What the record has before it is there, and once it is. */
  readonly set: Partial<InstanceRecord>
  readonly done: Partial<InstanceRecord>
  /** For the steps that provide it. */
  readonly planned: Partial<InstanceRecord>
  readonly partsFor: (host: PartsHost) => readonly Part[]
}

/** A device of a document's features, as the record of an instance has it. */
export async function plannedFeatures(
  { context, record }: MachineInstance,
  { deviceKey: key, features = '' }: PlugRequest,
  machines: HostMachines | undefined,
): Promise<PlannedDevice | undefined> {
  const { document } = record
  const all = machinesOf(record)
  if (document === undefined || all === undefined || machines === undefined)
    throw new AgentError(
      'INVALID_ARGUMENT',
      'features: the instance was made of a specification, want device',
    )
  const { machine } = runningOf(record)
  const wish = parseYaml(features)
  const present = all.desired?.devices[key]
  if (present !== undefined) {
    const same = withPlugged(withoutMachineDevices(machine, [key]), wish, key, machines.defaults)
    // Its place tells one CPU from another, and no wish has it.
    const isCpu = present.kind === 'cpu' && same.devices[key]?.kind === 'cpu'
    const isEqual = JSON.stringify(same.devices[key]) === JSON.stringify({ ...present, plugged: true })
    if (
      (isEqual || isCpu) &&
      JSON.stringify(same.backends[`${key}-backend`]) === JSON.stringify(machine.backends[`${key}-backend`])
    )
      return undefined
    throw new AgentError(
      'ALREADY_EXISTS',
      `instance ${record.properties?.key}: device ${key}: already plugged`,
    )
  }
  const next = withPlugged(machine, wish, key, machines.defaults)
  const device = next.devices[key]
  const backend = device?.backend ?? ''
  const at = `features.${device?.kind === 'nic' ? 'network' : 'storage'}[0]`
  const fields = new Map(backend === '' ? [] : [[backend, at]])
  const provided = await machines.provide(next, record, context.folder, fields)
  return plannedIn(next, key, record, provided.backends)
}

/** The vsock device of a document's machine, which had left it for a while; undefined for one that is there. */
export function plannedVsock({ record }: MachineInstance, request: PlugRequest): PlannedDevice | undefined {
  const { machine } = runningOf(record)
  const { backend, deviceKey } = request
  if (machine.devices[deviceKey] !== undefined) return undefined
  const left = leftVsock(request)
  if (left === undefined || backend === undefined)
    throw new AgentError('FAILED_PRECONDITION', `${pathOf('devices', deviceKey)}: not a vsock device`)
  const found = { [left.backend]: backendFromProto(left.backend, backend) }
  return plannedIn(withVsock(machine, deviceKey, left), deviceKey, record, found)
}

/** The device `key` of the machine that is to be, `next`, with what this host puts behind it. */
function plannedIn(
  next: Machine,
  key: string,
  record: Readonly<InstanceRecord>,
  found: Backends,
): PlannedDevice {
  const { document } = record
  const all = machinesOf(record)
  if (document === undefined || all === undefined)
    throw new AgentError('INTERNAL', `device ${key}: no machine of a document`)
  const { backends, machine } = runningOf(record)
  const device = next.devices[key]
  const backend = device?.backend ?? ''
  const own = found[backend]
  const nextBackends = own === undefined ? backends : { ...backends, [backend]: own }
  const wished = next.backends[backend]
  const add = (to: typeof machine) => ({
    ...to,
    devices: { ...to.devices, ...(device && { [key]: device }) },
    backends: { ...to.backends, ...(wished && { [backend]: wished }) },
  })
  const added = {
    ...document,
    saved: JSON.stringify(add(all.saved)),
    desired: JSON.stringify(add(all.desired ?? machine)),
    backends: JSON.stringify(nextBackends),
  }
  const spec = asSpec(next, nextBackends)
  const specification = specToProto(spec)
  const done = { document: { ...added, current: JSON.stringify(next) } }
  const partsFor = (host: PartsHost): readonly Part[] =>
    machineDeviceParts(next, key, {
      provide: provisionsFor(next, nextBackends, { ...host, ownFile: (name) => name }),
    }).parts
  return {
    spec,
    specification,
    backend,
    set: { specification, document: added },
    done,
    planned: { specification, ...done },
    partsFor,
  }
}

/** QEMU's parts of a device of the machine that runs. */
export function runningParts(
  record: Readonly<InstanceRecord>,
  key: string,
  host: PartsHost,
): readonly Part[] {
  const { backends, machine } = runningOf(record)
  if (machine.devices[key] === undefined) return []
  const provide = provisionsFor(machine, backends, { ...host, ownFile: (name) => name })
  return machineDeviceParts(machine, key, { provide }).parts
}

/** What changes when devices are not wished any more. */
export function withoutDesired(
  record: Readonly<InstanceRecord>,
  keys: readonly string[],
): Partial<InstanceRecord> {
  const machines = machinesOf(record)
  if (record.document === undefined || machines === undefined) return {}
  const { saved, desired } = machines
  const of = (machine: typeof saved) => JSON.stringify(withoutMachineDevices(machine, keys))
  return { document: { ...record.document, saved: of(saved), desired: desired ? of(desired) : '' } }
}

/** What changes when a device is there that is wished. Others that are there may not be wished any more. */
export function withPresent(record: Readonly<InstanceRecord>, key: string): Partial<InstanceRecord> {
  const { current, desired } = machinesOf(record) ?? {}
  const device = desired?.devices[key]
  if (record.document === undefined || current === undefined || device === undefined) return {}
  const behind = desired?.backends[device.backend ?? '']
  const next = {
    ...current,
    devices: { ...current.devices, [key]: device },
    backends: { ...current.backends, ...(behind && { [device.backend ?? '']: behind }) },
  }
  return { document: { ...record.document, current: JSON.stringify(next) } }
}

/** The keys of the backends of devices that are in the machine, or were to be. Specifications do not have disks of servers. */
export function backendsBehind(record: Readonly<InstanceRecord>, keys: readonly string[]): readonly string[] {
  const { current, desired } = machinesOf(record) ?? {}
  const all = { ...record.specification?.devices, ...desired?.devices, ...current?.devices }
  return keys.flatMap((key) => all[key]?.backend || [])
}

/** What changes when devices are not there any more. */
export function withoutPresent(
  record: Readonly<InstanceRecord>,
  keys: readonly string[],
): Partial<InstanceRecord> {
  const { specification } = record
  const own = specification && withoutDevices(specification, keys)
  const { document } = withoutDesired(record, keys)
  const { current } = machinesOf(record) ?? {}
  if (document === undefined) return { ...(own && { specification: own }) }
  const left = current && withoutMachineDevices(current, keys)
  const gone = backendsBehind(record, keys)
  const all: Readonly<Backends> = JSON.parse(document.backends || '{}')
  const backends = Object.fromEntries(Object.entries(all).filter(([key]) => !gone.includes(key)))
  // It counts the CPUs.
  const board = left && specToProto(asSpec(left, backends)).board
  return {
    ...(own && { specification: { ...own, ...(board && { board }) } }),
    document: {
      ...{ ...document, backends: JSON.stringify(backends) },
      current: left ? JSON.stringify(left) : '',
    },
  }
}
