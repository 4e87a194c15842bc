import { readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { AgentError } from '../../base/errors.ts'
import { PlugRequest, type Specification } from '../../gen/microvm/instance/v1/instance.ts'
import { InstanceRecord, type StepRecord, type StreamRecord } from '../../gen/microvm/instance/v1/records.ts'
import { namedBy } from '../instance/documents/check-images.ts'
import { checkRecorded } from '../instance/documents/document-record.ts'
import type { Ring } from '../instance/holder/holder.ts'
import { FIRST_PORT } from '../instance/record/instance-record.ts'
import { checkCanBeKept } from '../spec/check-spec.ts'
import { specFromProto } from '../spec/from-proto.ts'
import { specKey } from '../spec/spec-key.ts'
import type { HostFacts, Manifest } from './manifest.ts'
import type { GuestFacts } from './payloads/ask-guest.ts'
import { restoreInstance, saveInstance } from './payloads/saved-instance.ts'

/** What this host knows of a machine at a moment. */
export interface MachineKnown {
  readonly record: Readonly<InstanceRecord>
  readonly steps: readonly StepRecord[]
  readonly streams: readonly StreamRecord[]
}

interface StateFacts {
  /** Undefined without an agent. */
  readonly guest: GuestFacts | undefined
  readonly rings: readonly Ring[]
  readonly host: HostFacts
  readonly createdMs: number
}

/** Writes to a new file what this host's side knows of a machine that stands still. */
export async function writeState(path: string, known: MachineKnown, facts: StateFacts): Promise<void> {
  await writeFile(path, stateBytes(known, facts), { flag: 'wx', mode: 0o600, flush: true })
}

/** The same as an envelope of proto/state/host. */
export function stateBytes(
  { record, steps, streams }: MachineKnown,
  { guest, rings, host, createdMs }: StateFacts,
): Uint8Array {
  return saveInstance({
    record: {
      ...{ ...record, resets: [], reason: '' },
      ...(record.document && { document: { ...record.document, saved: record.document.current } }),
    },
    ...{ steps, guest, savedMs: BigInt(createdMs) },
    streams: streams.map(({ instance: _, ...stream }) => stream),
    rings: rings.map(({ isClosed, ...ring }) => ({ ...ring, closed: isClosed })),
    compatibility: { qemuVersion: host.qemu.replace(/^QEMU /, ''), kvm: host.acceleration === 'kvm' },
  })
}

/** What the record of the machine's next instance begins with. Throws FAILED_PRECONDITION for what this host does not read. */
export async function readState(path: string): Promise<InstanceRecord> {
  return recordIn(await readFile(path), path)
}

/** The same of an envelope from `source`. */
export function recordIn(envelope: Uint8Array, source: string): InstanceRecord {
  return { ...InstanceRecord.create(), ...restoreInstance(envelope, source).record }
}

/**
 * Checks what was read of a saved machine as EnsureInstance checks what it is given: the folder may have come from elsewhere, with
 * digests that fit. Whose files and networks they are is asked apart. Throws INVALID_ARGUMENT or FAILED_PRECONDITION that names the field.
 */
export async function checkState(
  record: InstanceRecord,
  {
    folder,
    manifest: { files, streams, unplugged },
  }: {
    readonly folder: string
    readonly manifest: Pick<Manifest, 'files' | 'streams' | 'unplugged'>
  },
): Promise<void> {
  const { cid, document, leaving, nextPort, specification } = record
  if (specification === undefined) throw wrong('specification', 'missing')
  if (document === undefined) checkCanBeKept(specFromProto(specification))
  else checkRecorded(document)
  checkLayerRecords(record, specification)
  const gone = leaving.find((key) => specification.devices[key] === undefined)
  if (gone !== undefined && document === undefined) throw wrong('leaving', `${gone}: no such device`)
  if (cid !== 0 && cid < FIRST_CID) throw wrong('cid', `${cid}, want ${FIRST_CID} or more`)
  if (nextPort < FIRST_PORT) throw wrong('next_port', `${nextPort}, want ${FIRST_PORT} or more`)
  for (const { port } of streams)
    if (port < FIRST_PORT || port >= nextPort)
      throw wrong('streams', `port ${port}, want ${FIRST_PORT} to ${nextPort - 1}`)
  if (unplugged !== '') checkUnplugged(unplugged)
  // What is below an overlay QEMU is told; where its data are, the image itself says.
  for (const { id } of record.layers) {
    const name = `disks/${id}.qcow2`
    if (files[name] === undefined) throw wrong(`layers.${id}`, `${name}: missing`)
    if ((await namedBy(join(folder, name))).hasDataFile)
      throw wrong(`layers.${id}`, `${name}: has its data elsewhere`)
  }
}

/** Of a guest (man 7 vsock). */
const FIRST_CID = 3

function wrong(field: string, text: string): AgentError {
  return new AgentError('FAILED_PRECONDITION', `${field}: ${text}`)
}

/** QEMU opens the file below a layer: none that the machine's own configurations do not name. */
function checkLayerRecords(
  { document, lastLayer, layers, snapshots }: InstanceRecord,
  present: Specification,
): void {
  const all = [present, ...snapshots.flatMap(({ specification }) => specification ?? [])]
  if (document === undefined) for (const each of all) specFromProto(each)
  const ids = new Set<number>()
  for (const { active, backend, base, id, parent, secret } of layers) {
    const at = `layers.${id}`
    if (id < 1 || id > lastLayer || ids.has(id))
      throw wrong(at, `want an id of its own, of 1 to ${lastLayer}`)
    const isParent = layers.some((each) => each.id === parent && parent < id && each.base === base)
    if (parent !== 0 && !isParent) throw wrong(at, `parent ${parent}: no layer below it`)
    const files = (active ? [present] : all).flatMap(({ backends }) => backends[backend]?.file ?? [])
    if (!files.some(({ encryption, path }) => path === base && (encryption?.secret ?? '') === secret))
      throw wrong(at, `${base}: no file of backend ${backend}`)
    ids.add(id)
  }
  for (const { disks, name } of snapshots)
    for (const { layer } of disks)
      if (layer !== 0 && !ids.has(layer)) throw wrong(`snapshots.${name}`, `layer ${layer}: missing`)
}

/** What leaves for a suspend is vsock, behind the daemon that this host starts. */
function checkUnplugged(text: string): void {
  const { backend, device, deviceKey } = PlugRequest.decode(Buffer.from(text, 'base64'))
  const isVsock = device?.vsock !== undefined && backend?.vsockDaemon !== undefined
  if (!isVsock) throw wrong('unplugged', 'want a vsock device of vhost-device-vsock')
  specKey(deviceKey)
}
