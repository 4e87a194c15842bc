import type { InstanceRecord, StepRecord } from '../../../gen/microvm/instance/v1/records.ts'
import { specKey } from '../../spec/spec-key.ts'
import { canBeUnplugged } from '../documents/document-record.ts'
import { backendsBehind } from '../documents/plug-features.ts'
import type { MachineInstance } from '../instance.ts'
import { VSOCK_CHILD } from '../machine/daemon-steps.ts'
import { makeSteps, type PlannedStep } from '../machine/steps.ts'

/**
 * The steps by which this host provides a backend: its daemon, before QEMU uses it, or its tap with its filter, or its
 * limits, after QEMU has made it.
 */
export interface Providers {
  readonly daemons: readonly PlannedStep[]
  readonly filters: readonly PlannedStep[]
  readonly taps: readonly PlannedStep[]
  /** The files of the secrets of the machine's disks, by their UUIDs. */
  readonly secrets: ReadonlyMap<string, string>
}

/** What provides the backend `key` with some changes of the record. */
export async function providersOf(
  instance: MachineInstance,
  changes: Partial<InstanceRecord>,
  key: string,
): Promise<Providers> {
  const planned = key === '' ? [] : await instance.planned(changes)
  const own = (name: PlannedStep['step']) =>
    planned.filter(({ step, words }) => step === name && words[0] === specKey(key))
  const { secrets = new Map() } = planned.find(({ step }) => step === 'qemu') ?? {}
  const limits = own('throttle')
  // QEMU keeps those of a disk's earlier backend.
  const lifted = limits.length > 0 ? [] : providerSteps(instance, [key]).flatMap(withoutLimits)
  return {
    daemons: own('daemon'),
    filters: [...own('fence'), ...own('filter')],
    taps: [...own('tap'), ...limits, ...lifted],
    secrets,
  }
}

function withoutLimits({ step, words: [key = '', device = ''] }: StepRecord): readonly PlannedStep[] {
  return step === 'throttle' ? [{ step, words: [key, device, '0', '0'] }] : []
}

/** The recorded steps that provide these backends. */
export function providerSteps(
  { recorded }: MachineInstance,
  keys: readonly (string | undefined)[],
): readonly StepRecord[] {
  const wanted: readonly string[] = keys.flatMap((key) => (key ? [specKey(key)] : []))
  return recorded.steps.filter(
    ({ step, words: [key = ''] }) =>
      ['daemon', 'fence', 'filter', 'tap', 'throttle', 'volume'].includes(step) && wanted.includes(key),
  )
}

/**
 * vhost-device-vsock 0.3.0 ends before its device leaves for good: a thread of it returns the guest's buffers even after QEMU has
 * stopped the queues, and would write into memory that the guest has taken back. It stays when the device comes back. Nothing flows
 * then, for the streams are detached, and a guest that keeps its device for longer goes on with it.
 */
export function writingDaemons(instance: MachineInstance, deviceKey: string): readonly StepRecord[] {
  const { record, recorded } = instance
  const comesBack = recorded.steps.some(({ step, words }) => step === 'replug' && words[0] === deviceKey)
  if (comesBack || !canBeUnplugged(record, deviceKey)) return []
  const steps = providerSteps(instance, backendsBehind(record, [deviceKey]))
  return steps.filter(({ step, words: [, name] }) => step === 'daemon' && name === VSOCK_CHILD)
}

/** The recorded steps of a backend that another provision of it does not take over. A volume stays for as long as its disk. */
export function otherSteps(
  instance: MachineInstance,
  key: string,
  { daemons, filters, taps }: Providers,
): readonly StepRecord[] {
  const kinds: readonly string[] = [...daemons, ...filters, ...taps].map(({ step }) => step)
  return providerSteps(instance, [key]).filter(({ step }) => step !== 'volume' && !kinds.includes(step))
}

export function toRecord(
  { recorded }: MachineInstance,
  planned: readonly PlannedStep[],
): readonly StepRecord[] {
  return planned.map(({ step, words }) => recorded.step(step, words))
}

/** Filters the tap of a backend with some changes of the record, and makes it a port of its bridge; does nothing for another backend. */
export async function connectTap(
  instance: MachineInstance,
  changes: Partial<InstanceRecord>,
  key: string,
): Promise<void> {
  const { filters, taps } = await providersOf(instance, changes, key)
  await makeSteps(instance.context, [...filters, ...taps], instance.record)
}
