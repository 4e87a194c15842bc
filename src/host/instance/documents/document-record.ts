import { randomUUID } from 'node:crypto'
import { AgentError, messageOf } from '../../../base/errors.ts'
import {
  type Configurations,
  type PlugRequest,
  Stability,
} from '../../../gen/microvm/instance/v1/instance.ts'
import type { DocumentRecord, InstanceRecord } from '../../../gen/microvm/instance/v1/records.ts'
import { checkHardware } from '../../machine/check-hardware.ts'
import { type Document, parseDocument, readMachine } from '../../machine/document/document.ts'
import { API_VERSION, type Machine } from '../../machine/machine.ts'
import { canLeave, type LeftVsock, withVsock } from '../../machine/plugged.ts'
import { asSpec, type Backends } from '../../qemu/machine/as-spec.ts'
import { backendFromProto } from '../../spec/from-proto.ts'
import type { VmSpec } from '../../spec/spec.ts'
import { specToProto } from '../../spec/to-proto.ts'

/** The configurations of an instance that was made of a document. */
export interface Machines {
  /** Of the next cold boot. */
  readonly saved: Machine
  /** What the running machine is to be, and what it is; undefined while none runs. */
  readonly desired: Machine | undefined
  readonly current: Machine | undefined
}

type Recorded = Readonly<Pick<InstanceRecord, 'document'>>

/** Undefined for an instance that was made of a specification. Throws FAILED_PRECONDITION for machines of a later version. */
export function machinesOf({ document }: Recorded): Machines | undefined {
  if (document === undefined) return undefined
  const { saved, desired, current } = document
  return {
    saved: parse(saved, 'saved'),
    desired: optional(desired, 'desired'),
    current: optional(current, 'current'),
  }
}

/** Throws for what no call could have made. What is behind the machines is looked up by the tenant's rules at each start. */
export function checkRecorded(document: DocumentRecord): void {
  for (const [name, machine] of Object.entries(machinesOf({ document }) ?? {}))
    if (machine !== undefined) checkRecordedMachine(name, machine)
  const { at, domain } = parseDocument(document.given)
  if (domain !== undefined && !document.isPrivileged)
    throw new AgentError('PERMISSION_DENIED', `${at}.domain: only for the administrator`)
}

function checkRecordedMachine(name: string, machine: Machine): void {
  try {
    checkHardware(machine)
  } catch (error) {
    throw new AgentError('FAILED_PRECONDITION', `${name} machine: ${messageOf(error)}`, { cause: error })
  }
}

/** The machine that runs and what this host puts behind it. Throws FAILED_PRECONDITION when none runs. */
export function runningOf({ document }: Recorded): {
  readonly machine: Machine
  readonly backends: Backends
} {
  if (document === undefined || document.current === '')
    throw new AgentError('FAILED_PRECONDITION', 'the machine does not run')
  return { machine: parse(document.current, 'current'), backends: JSON.parse(document.backends) }
}

/** The machine that runs, in the words of a specification. */
export function runningSpec(record: Recorded): VmSpec {
  const { backends, machine } = runningOf(record)
  return asSpec(machine, backends)
}

export function newDocument(
  given: string,
  stability: Document['stability'],
  isPrivileged: boolean,
  machine: Machine,
): DocumentRecord {
  return {
    ...{ given, isPrivileged, saved: JSON.stringify(machine), ...NOT_RUNNING },
    stability: stability === 'latest' ? Stability.LATEST : Stability.FIXED,
  }
}

/** The document of a clone: its machines have an identity of their own, and cards with the addresses that `newMac` returns. */
export function withOwnHardware(document: DocumentRecord, newMac: (mac: string) => string): DocumentRecord {
  const uuid = randomUUID()
  const own = (name: 'saved' | 'desired' | 'current') => {
    if (document[name] === '') return ''
    const machine = parse(document[name], name)
    const devices = Object.entries(machine.devices).map(([key, device]) => {
      const { mac } = device.properties
      if (typeof mac !== 'string') return [key, device]
      return [key, { ...device, properties: { ...device.properties, mac: newMac(mac) } }]
    })
    return JSON.stringify({ ...machine, uuid, devices: Object.fromEntries(devices) })
  }
  return { ...document, saved: own('saved'), desired: own('desired'), current: own('current') }
}

/** Whether the guest can let go of a device that it has booted with. */
export function canBeUnplugged(record: Readonly<InstanceRecord>, deviceKey: string): boolean {
  const machine = machinesOf(record)?.current
  if (machine !== undefined) return canLeave(machine, deviceKey)
  const { board, devices } = record.specification ?? {}
  return !/q35/.test(board?.machine ?? '') || (devices?.[deviceKey]?.port ?? '') !== ''
}

/** What a vsock device that leaves for a while has besides the words of a specification, as `features` of its PlugRequest. */
export function placeOfVsock(record: Readonly<InstanceRecord>, deviceKey: string): string {
  const { address } = machinesOf(record)?.current?.devices[deviceKey] ?? {}
  return address === undefined ? '' : JSON.stringify(address)
}

/** Undefined for what is no vsock device. */
export function leftVsock({ device, features = '' }: PlugRequest): LeftVsock | undefined {
  if (device?.vsock === undefined) return undefined
  return { backend: device.backend, cid: device.vsock.cid, address: jsonOf(features) }
}

function jsonOf(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    return undefined
  }
}

/** The document, whose saved machine has again the vsock devices that had left for a while. */
export function withVsocks(document: DocumentRecord, requests: readonly PlugRequest[]): DocumentRecord {
  if (requests.length === 0 || !isRead(document.saved)) return document
  let saved = parse(document.saved, 'saved')
  for (const request of requests) {
    const left = leftVsock(request)
    if (left === undefined || saved.devices[request.deviceKey] !== undefined) continue
    try {
      saved = withVsock(saved, request.deviceKey, left)
    } catch {
      // It has no place any more: a machine can be stopped all the same.
    }
  }
  return { ...document, saved: JSON.stringify(saved) }
}

const NOT_RUNNING = { desired: '', current: '', backends: '', passwords: {} }

/** How a host provides a machine: backends by their keys, and the UUIDs of passwords by the keys of screens' backends. */
export interface Provided {
  readonly backends: Backends
  readonly passwords: Readonly<Record<string, string>>
}

/** By how much the local time of this host is ahead of UTC. */
export function zoneSeconds(): number {
  return -60 * new Date().getTimezoneOffset()
}

/** How far from UTC the clock of the machine is to begin. */
export function clockStart({ clock }: Machine): number {
  return clock.adjustmentSeconds + (clock.basis === 'localtime' ? zoneSeconds() : 0)
}

/** What changes with a start of the saved machine, or of another one which then is the saved one. */
export function withStarted(
  document: DocumentRecord,
  machine: Machine,
  { backends, passwords }: Provided,
): Partial<InstanceRecord> {
  const text = JSON.stringify(machine)
  const machines = { saved: text, desired: text, current: text, backends: JSON.stringify(backends) }
  return {
    document: {
      ...{ ...document, ...machines, passwords: { ...passwords } },
      clockStart: BigInt(clockStart(machine)),
    },
    specification: specToProto(asSpec(machine, backends)),
  }
}

/**
 * What changes with a stop. What was chosen for one run is forgotten, but the files of disks, which snapshots may be on, and what
 * a machine that has not ended (`isEnded`) may still use.
 */
export function withStopped(record: Readonly<InstanceRecord>, isEnded: boolean): Partial<InstanceRecord> {
  const { document, pinnedCpus } = record
  const kept = isEnded ? { pinnedCpus: [] } : { pinnedCpus }
  if (document === undefined) return kept
  const { backends } = document
  return {
    ...kept,
    document: { ...document, ...NOT_RUNNING, ...(!isEnded && { backends }) },
    ...(isRead(document.saved) && { specification: specToProto(stoppedSpec(record)) }),
    ...{ leaving: [], leavingMs: {} },
  }
}

/** The saved machine in the words of a specification, with the files that its disks had last. */
export function stoppedSpec({ document, specification }: Readonly<InstanceRecord>): VmSpec {
  const backends = Object.entries(specification?.backends ?? {}).flatMap(([key, backend]) =>
    backend.file === undefined ? [] : [[key, backendFromProto(key, backend)] as const],
  )
  return asSpec(parse(document?.saved ?? '', 'saved'), Object.fromEntries(backends))
}

/** As an answer has them; `isShort` leaves the texts out. */
export function configurationsOf(
  { document, specification }: Readonly<InstanceRecord>,
  isShort = false,
): Configurations | undefined {
  if (document === undefined) return undefined
  const { memoryMib = 0n, cpus = 0 } = specification?.board ?? {}
  const { given, saved, desired, current, stability } = document
  const texts = isShort
    ? { document: '', saved: '', desired: '', current: '' }
    : { document: given, saved, desired, current }
  return { ...texts, memoryMib, cpus, stability: stability || Stability.FIXED }
}

function optional(text: string, name: keyof Machines): Machine | undefined {
  return text === '' ? undefined : parse(text, name)
}

/** Whether this version reads the machine. One that it does not read stays as it is recorded. */
function isRead(text: string): boolean {
  try {
    return parse(text, 'saved') !== undefined
  } catch {
    return false
  }
}

function parse(text: string, name: keyof Machines): Machine {
  const value = JSON.parse(text)
  try {
    return readMachine(value)
  } catch (error) {
    const wrong = value.apiVersion === API_VERSION ? messageOf(error) : `apiVersion: ${value.apiVersion}`
    const advice = 'written by another version, want that one or a later one'
    throw new AgentError('FAILED_PRECONDITION', `${name} machine: ${wrong}: ${advice}`, { cause: error })
  }
}
