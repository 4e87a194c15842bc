import { AgentError } from '../../../base/errors.ts'
import type { ReplaceBackendRequest, Specification } from '../../../gen/microvm/instance/v1/instance.ts'
import type { InstanceRecord } from '../../../gen/microvm/instance/v1/records.ts'
import type { Machine } from '../../machine/machine.ts'
import { withSource } from '../../machine/plugged.ts'
import { asSpec, type Backends } from '../../qemu/machine/as-spec.ts'
import { pathOf } from '../../spec/component-path.ts'
import { specToProto } from '../../spec/to-proto.ts'
import type { MachineInstance } from '../instance.ts'
import { machinesOf, runningOf, stoppedSpec } from './document-record.ts'
import type { HostMachines } from './host-machines.ts'

/** What is to stand behind a device of a document: a name of the catalogue, and what this host has by that name. */
export interface ReplacedSource {
  readonly name: string
  readonly found: Backends[string] | undefined
}

/** A backend of a document before it is replaced by another name. Undefined when the machine has that already. */
export async function plannedSource(
  { context, key: instance, record }: MachineInstance,
  { backendKey: key, source = '' }: Pick<ReplaceBackendRequest, 'backendKey' | 'source'>,
  machines: HostMachines | undefined,
): Promise<ReplacedSource | undefined> {
  const { current, saved } = machinesOf(record) ?? {}
  const machine = current ?? saved
  if (machine === undefined || machines === undefined)
    throw new AgentError('INVALID_ARGUMENT', 'source: the instance was made of a specification, want backend')
  if (machine.backends[key] === undefined)
    throw new AgentError('NOT_FOUND', `instance ${instance}: backend ${key}: not found`)
  const next = withSource(machine, key, source)
  const fields = new Map([[key, pathOf('backends', key)]])
  const { backends } = await machines.provide(next, record, context.folder, fields)
  const found = backends[key]
  const present = current && runningOf(record).backends[key]
  const { kind, name } = machine.backends[key]
  const isNamed = kind === next.backends[key]?.kind && name === source
  if (isNamed && (current === undefined || isEqual(present, found))) return undefined
  if (current !== undefined && !isEqual(present, found)) refuseWhileRunning(key, present, found)
  return { name: source, found }
}

function isEqual(one: unknown, other: unknown): boolean {
  return JSON.stringify(one) === JSON.stringify(other)
}

/** Specifications have no disks of servers, and no images of qcow2, of which QEMU 7.2 reads the header once. */
function refuseWhileRunning(key: string, ...backends: readonly (Backends[string] | undefined)[]): void {
  const isServed = backends.some((backend) => backend?.kind === 'network-disk')
  const isImage = backends.some((backend) => backend?.kind === 'file' && backend.format === 'qcow2')
  if (!isServed && !isImage) return
  const what = isServed ? 'a disk of a server' : 'a qcow2 volume'
  const text = `${what} can be replaced, or replace another, only while the machine is stopped`
  throw new AgentError('UNIMPLEMENTED', `backend ${key}: ${text}`)
}

/** What changes in the record when a backend is replaced. Every machine that has it has the new name. */
export function withReplaced(
  record: Readonly<InstanceRecord>,
  key: string,
  { found, name }: ReplacedSource,
): Partial<InstanceRecord> & { readonly specification: Specification } {
  const { document, specification } = record
  const machines = machinesOf(record)
  if (document === undefined || machines === undefined || specification === undefined)
    throw new AgentError('INTERNAL', `backend ${key}: not of a document`)
  const of = (machine: Machine) =>
    machine.backends[key] === undefined ? machine : withSource(machine, key, name)
  const { current, desired, saved } = machines
  const next = { ...document, saved: JSON.stringify(of(saved)) }
  if (current === undefined) {
    const { [key]: _, ...others } = specification.backends
    const own = specToProto(asSpec(of(saved), { ...(found && { [key]: found }) })).backends
    const before = { ...specification, backends: { ...others, ...own } }
    const stopped = stoppedSpec({ ...record, document: next, specification: before })
    return { document: next, specification: specToProto(stopped) }
  }
  const { [key]: _, ...others } = runningOf(record).backends
  const backends: Backends = { ...others, ...(found && { [key]: found }) }
  const running = {
    desired: desired ? JSON.stringify(of(desired)) : '',
    current: JSON.stringify(of(current)),
  }
  return {
    document: { ...next, ...running, backends: JSON.stringify(backends) },
    specification: specToProto(asSpec(of(current), backends)),
  }
}
