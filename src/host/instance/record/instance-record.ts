import { randomUUID } from 'node:crypto'
import { renameSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import {
  type Instance,
  PlugRequest,
  type Properties,
  type Specification,
  State,
} from '../../../gen/microvm/instance/v1/instance.ts'
import { InstanceRecord, StepRecord } from '../../../gen/microvm/instance/v1/records.ts'
import { pathOf } from '../../spec/component-path.ts'
import { withDevice, withoutDevices } from '../devices/specification.ts'
import { configurationsOf, withVsocks } from '../documents/document-record.ts'
import type { Change } from '../registry/registry.ts'
import { fileError } from '../snapshots/overlay-file.ts'

/** The first port that a stream gets; lower ones are well known, the agent's own 1024 among them. */
export const FIRST_PORT = 0x1_0000

export function newRecord(
  properties: Properties,
  specification: Specification,
  {
    nowMs,
    ...facts
  }: Pick<InstanceRecord, 'cid' | 'uid'> &
    Partial<Pick<InstanceRecord, 'document'>> & { readonly nowMs: number },
): InstanceRecord {
  return {
    ...InstanceRecord.create(),
    properties,
    specification,
    desired: State.PAUSED,
    current: State.CREATING,
    createdMs: BigInt(nowMs),
    ...facts,
    ...{ bootId: randomUUID(), generationId: randomUUID() },
    nextPort: FIRST_PORT,
  }
}

export function recordRow(key: string, record: InstanceRecord): Change {
  return { table: 'instances', key, payload: InstanceRecord.encode(record).finish() }
}

export function recordOf(payload: Uint8Array): InstanceRecord {
  return InstanceRecord.decode(payload)
}

/**
 * Writes the record into the instance's folder, from which the registry can be made anew. There is none until its machine comes. Blocks
 * as the registry does, which has just written to this disk.
 */
export function writeRecordFile(folder: string, record: InstanceRecord): void {
  if (record.current === State.AWAITING) return
  const path = join(folder, RECORD_FILE)
  try {
    writeFileSync(`${path}.new`, InstanceRecord.encode(record).finish(), { mode: 0o600 })
    renameSync(`${path}.new`, path)
  } catch (error) {
    rmSync(`${path}.new`, { force: true })
    throw fileError(path, error)
  }
}

const RECORD_FILE = 'specification.binpb'

/** Keys hold no `/`, so the rows of one instance begin with its key. */
export function stepRow(step: StepRecord): Change {
  return { table: 'steps', key: stepKey(step), payload: StepRecord.encode(step).finish() }
}

export function withoutStep(step: StepRecord): Change {
  return { table: 'steps', key: stepKey(step), payload: undefined }
}

export function stepKey({ instance, step, words }: StepRecord): string {
  return `${instance}/${step}/${words[0] ?? ''}`
}

/** The rows that remove the streams of these steps. */
export function streamRows(steps: readonly StepRecord[]): readonly Change[] {
  const ports = steps.flatMap(({ instance, step, words: [port] }) =>
    step === 'stream' ? [`${instance}/${port}`] : [],
  )
  return ports.map((key) => ({ table: 'streams', key, payload: undefined }))
}

/** What a stop takes from a record: the devices that were leaving, and those of an unfinished plug. What left for a while is back. */
export function withoutLost(
  { document, specification, leaving }: Readonly<InstanceRecord>,
  steps: readonly StepRecord[],
): Partial<InstanceRecord> {
  const unfinished = steps.flatMap(({ step, words }) => (step === 'plug' ? words.slice(0, 1) : []))
  const lost = [...leaving, ...unfinished]
  const back = steps.flatMap(({ step, words: [, text = ''] }) =>
    step === 'replug' ? [PlugRequest.decode(Buffer.from(text, 'base64'))] : [],
  )
  if (specification === undefined || lost.length + back.length === 0) return {}
  const left = withoutDevices(specification, lost)
  const whole = back.reduce(
    (sum, { deviceKey, device, backend }) =>
      device === undefined ? sum : withDevice(sum, deviceKey, { device, backend }),
    left,
  )
  return { leaving: [], specification: whole, ...(document && { document: withVsocks(document, back) }) }
}

/** Whether processes of the instance may be there, all of which end with the holder. */
export function hasHolder(steps: readonly StepRecord[]): boolean {
  return steps.some(({ step }) => step === 'holder')
}

/** As callers see it. */
export function shownState({ current, terminated }: Pick<InstanceRecord, 'current' | 'terminated'>): State {
  return terminated && current === State.STOPPED ? State.TERMINATED : current
}

/** What the record alone tells of an instance. */
export function instanceOf(record: InstanceRecord): Instance {
  const { properties, specification, awaiting, reason, bootId, reboots } = record
  const { sequence, createdMs, cid, uid, document } = record
  return {
    properties,
    state: shownState(record),
    reason,
    ...(document !== undefined
      ? { configurations: configurationsOf(record, true) }
      : awaiting === undefined
        ? { specification }
        : { awaiting }),
    backends: {},
    devices: {},
    bootId,
    reboots,
    sequence,
    createdMs,
    qemuPid: 0,
    holderPid: 0,
    cid,
    warnings: warningsOf(record),
    uid,
    runValues: {},
    operations: [],
    madeOf: record.clonedKey || record.savedName,
  }
}

function warningsOf({ specification, uid }: InstanceRecord): string[] {
  const { board, backends = {} } = specification ?? {}
  const unstable = 'machine microvm has no versions, so it may change with the next QEMU'
  const folders = Object.entries(backends).flatMap(([key, { folder }]) =>
    folder === undefined || uid === 0
      ? []
      : [`${pathOf('backends', key)}: QEMU serves this folder itself, and is root for that`],
  )
  return [...(board?.machine === 'microvm' ? [unstable, NO_GENERATION_ID] : []), ...folders]
}

export const NO_GENERATION_ID =
  'machine microvm has no vmgenid, so its guest learns of a restore by Resumed alone'
