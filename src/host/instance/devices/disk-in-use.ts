import { statSync } from 'node:fs'
import { AgentError, messageOf } from '../../../base/errors.ts'
import { type Backend, File_Access, type Layer, State } from '../../../gen/microvm/instance/v1/instance.ts'
import {
  type DocumentRecord,
  InstanceRecord,
  type StepRecord,
} from '../../../gen/microvm/instance/v1/records.ts'
import type { Backends as MachineBackends } from '../../qemu/machine/as-spec.ts'
import { pathOf } from '../../spec/component-path.ts'
import { type NetworkDisk, plainDiskUrl } from '../../spec/spec.ts'
import { nodeNames, specKey } from '../../spec/spec-key.ts'
import { volumeField } from '../documents/host-machines.ts'
import { hasHolder } from '../record/instance-record.ts'
import { layerNode } from '../snapshots/layers.ts'

/** An instance, as far as it may have a disk open. */
interface DiskUser {
  readonly key: string
  readonly record: Readonly<InstanceRecord>
  readonly recorded: { readonly steps: readonly StepRecord[] }
  readonly context: { readonly machine: unknown }
  /** All instances of the host. */
  all(): Iterable<DiskUser>
}

type Backends = Readonly<Record<string, Backend>>

/** QEMU's words (file-posix.c); the hint with the path is on its stderr only. */
const LOCK = /Failed to get (?:shared )?"[\w-]+" lock/
const HINT = /Is another process using the image \[(.*)\]\?/

/** The holder's words for a file that QEMU maps (native/holder/children/walls.c). */
const MAP = /^qemu: (.*): EBUSY$/

/**
 * FAILED_PRECONDITION with who uses the file that QEMU could not lock, at `path` unless QEMU says, or with the field of a disk that
 * cannot be opened by its secret; other errors as they are.
 */
export function explainDisk(error: unknown, asking: DiskUser, path?: string): unknown {
  const explained = explainSecret(error, asking.record, path)
  const text = messageOf(explained)
  const named = HINT.exec(text)?.[1] ?? MAP.exec(text)?.[1]
  const locked = named ?? (LOCK.test(text) ? (path ?? usedDisk(asking)) : undefined)
  if (locked === undefined) return explained
  return new AgentError('FAILED_PRECONDITION', `${locked}: in use by ${diskUser(locked, asking)}`)
}

/** QEMU's words (block/crypto.c), after the option of the disk at its start. */
const UNLOCK =
  /(?:node-name=([^,:]+).*: )?(?:Invalid password, cannot unlock any keyslot|Volume is not in LUKS format)/

function explainSecret(
  error: unknown,
  { layers, specification }: Readonly<InstanceRecord>,
  plugged: string | undefined,
): unknown {
  const text = messageOf(error)
  const unlock = UNLOCK.exec(text)
  if (unlock === null) return error
  const [, node] = unlock
  const { backends = {} } = specification ?? {}
  const layer = layers.find(({ id }) => layerNode(id) === node)
  const [key = layer?.backend] =
    Object.entries(backends).find(([name, { file }]) =>
      node === undefined ? file?.path === plugged : nodeNames(specKey(name)).format === node,
    ) ?? []
  if (key === undefined) return error
  const isLuks = !text.includes('not in LUKS format')
  const at = pathOf('backends', key, 'file', ...(isLuks ? ['encryption', 'secret'] : ['path']))
  const { path = '', encryption } = backends[key]?.file ?? {}
  const file = layer === undefined ? path : `layer ${layer.id}, want the one at the time of its snapshot`
  const told = isLuks ? `${encryption?.secret} does not open ${file}` : `${path}: not a LUKS image`
  return new AgentError('FAILED_PRECONDITION', `${at}: ${told}`)
}

/** A disk that others have, or the first one: QEMU does not say which, when a loaded machine is to go on. */
function usedDisk(asking: DiskUser): string | undefined {
  const backends = Object.values(asking.record.specification?.backends ?? {})
  const paths = backends.flatMap(({ file }) => file?.path ?? [])
  return paths.find((path) => diskUser(path, asking) !== ANOTHER) ?? paths[0]
}

const ANOTHER = 'another process'

/** Who has a disk in the file at `path`, as far as the instance `asking` may know of others. */
function diskUser(path: string, asking: DiskUser): string {
  const isHere = isSameFile(path)
  const disksHere = ({ record }: DiskUser) =>
    Object.values(record.specification?.backends ?? {}).filter(({ file }) => file && isHere(file.path))
  for (const other of asking.all()) {
    if (other === asking || other.context.machine === undefined || disksHere(other).length === 0) continue
    return isKnown(other, asking) ? `instance ${other.key}` : ANOTHER
  }
  return disksHere(asking).length > 1 ? 'another disk of the machine' : ANOTHER
}

/** Refuses files that layers of other instances are on, and those of a machine that is being saved or loaded: no lock is on them. */
export function refuseOthersBases(backends: Backends = {}, asking: DiskUser): void {
  const written = writtenBy(asking, backends)
  for (const other of asking.all()) {
    if (other === asking) continue
    refuseBases(written, layersOf(other), nameOf(other, asking))
    if (other.recorded.steps.some(({ step }) => UNLOCKED.includes(step))) refuseShared(written, other, asking)
  }
}

/** The steps of a machine whose disks QEMU does not lock. */
const UNLOCKED: readonly string[] = ['suspend', 'memory', 'resume', 'revert']

function refuseShared(backends: Backends, other: DiskUser, asking: DiskUser): void {
  const others = Object.values(other.record.specification?.backends ?? {})
  for (const [key, { file }] of Object.entries(backends)) {
    const isHere = file && isSameFile(file.path)
    const found = others.find((each) => each.file && isHere?.(each.file.path))?.file
    const isWritten = [found, file].some((each) => each?.access === File_Access.READ_WRITE)
    if (found === undefined || !isWritten) continue
    const text = `${found.path}: ${nameOf(other, asking)} is being saved or loaded with it`
    throw new AgentError('FAILED_PRECONDITION', `${pathOf('backends', key, 'file', 'path')}: ${text}`)
  }
}

/** Without those on which layers are, to which alone the guest writes, unless these are being merged. */
function writtenBy({ record, recorded }: DiskUser, backends: Backends): Backends {
  const isMerging = recorded.steps.some(({ step }) => step === 'merge')
  const hasLayers = (key: string) => record.layers.some(({ active, backend }) => active && backend === key)
  return Object.fromEntries(Object.entries(backends).filter(([key]) => isMerging || !hasLayers(key)))
}

/** With those that a snapshot is about to make. */
export function layersOf({ record, recorded }: DiskUser): readonly Layer[] {
  const planned = recorded.steps.flatMap(({ step, words: [, , plan = ''] }) =>
    step === 'snapshot' ? InstanceRecord.decode(Buffer.from(plan, 'base64')).layers : [],
  )
  return [...record.layers, ...planned]
}

export function nameOf(other: DiskUser, asking: DiskUser): string {
  return isKnown(other, asking) ? `instance ${other.key}` : 'another instance'
}

/** A tenant may not know of others. */
function isKnown(other: DiskUser, asking: DiskUser): boolean {
  const [owner, tenant] = [other, asking].map(({ record }) => record.properties?.tenant ?? '')
  return tenant === '' || tenant === owner
}

/** What a stop could not end may still write. */
function isStopped({ record, recorded }: DiskUser): boolean {
  return record.current === State.STOPPED && !hasHolder(recorded.steps)
}

/** Refuses files to which an instance may write that is not stopped: a snapshot would not keep what they have. */
export function refuseWritten(backends: Backends, asking: DiskUser): void {
  for (const other of asking.all()) {
    if (other === asking || isStopped(other)) continue
    const { clone, specification: { backends: own = {} } = {} } = other.record
    const all = clone ? writtenBy(other, own) : own
    const written = Object.values(all).flatMap(({ file }) =>
      file?.access === File_Access.READ_WRITE ? [file.path] : [],
    )
    for (const [key, { file }] of Object.entries(backends)) {
      if (file === undefined || !written.some(isSameFile(file.path))) continue
      const text = `${file.path}: ${nameOf(other, asking)} may write it, want it stopped`
      throw new AgentError('FAILED_PRECONDITION', `${pathOf('backends', key, 'file', 'path')}: ${text}`)
    }
  }
}

/**
 * Refuses disks of servers that another instance has, which is not stopped or is `starting`, where one of both writes: QEMU
 * locks files only.
 */
export function refuseServed(
  document: DocumentRecord | undefined,
  asking: DiskUser,
  starting: ReadonlyMap<DiskUser, DocumentRecord | undefined>,
): void {
  for (const other of asking.all()) {
    if (other === asking || (isStopped(other) && !starting.has(other))) continue
    const used = Object.values(servedDisks(starting.get(other) ?? other.record.document))
    for (const [key, { access, url }] of Object.entries(servedDisks(document))) {
      const isShared = ({ access: others }: NetworkDisk) => access === 'read-only' && others === 'read-only'
      if (!used.some((each) => plainDiskUrl(each.url) === plainDiskUrl(url) && !isShared(each))) continue
      const text = `${nameOf(other, asking)} has this disk, want it stopped`
      throw new AgentError('FAILED_PRECONDITION', `${volumeField(document, key)}: ${text}`)
    }
  }
}

/** The disks of servers that a running machine has, by the keys of their backends. */
export function servedDisks(document: DocumentRecord | undefined): Readonly<Record<string, NetworkDisk>> {
  const backends: Readonly<Record<string, { readonly kind: string }>> = JSON.parse(document?.backends || '{}')
  return Object.fromEntries(
    Object.entries(backends).filter((each): each is [string, NetworkDisk] => each[1].kind === 'network-disk'),
  )
}

/** Refuses a disk whose name means another one by now: what goes on is a machine that was `saved` with the first. */
export function refuseOtherDisks(
  saved: DocumentRecord | undefined,
  document: DocumentRecord | undefined,
): void {
  const [before, now] = [disksBehind(saved), disksBehind(document)]
  for (const key of new Set([...before.keys(), ...now.keys()])) {
    if (before.get(key) === now.get(key)) continue
    // Without the paths, which a tenant need not know.
    const text = 'another disk by now, want the one that the machine was saved with'
    throw new AgentError('FAILED_PRECONDITION', `${volumeField(document, key)}: ${text}`)
  }
}

/** Where the disks of a machine are, by the keys of their backends. */
function disksBehind(document: DocumentRecord | undefined): ReadonlyMap<string, string> {
  const backends: MachineBackends = JSON.parse(document?.backends || '{}')
  return new Map(
    Object.entries(backends).flatMap(([key, backend]) => {
      if (backend.kind === 'file') return [[key, backend.path]]
      return backend.kind === 'network-disk' ? [[key, plainDiskUrl(backend.url)]] : []
    }),
  )
}

/** Throws FAILED_PRECONDITION for a file that layers are on: what was written there would be in their snapshots. */
export function refuseBases(backends: Backends, layers: readonly Layer[], owner: string): void {
  for (const [key, { file }] of Object.entries(backends)) {
    const isHere = file && layers.length > 0 ? isSameFile(file.path) : undefined
    if (isHere === undefined || !layers.some(({ base }) => isHere(base))) continue
    const at = pathOf('backends', key, 'file', 'path')
    throw new AgentError('FAILED_PRECONDITION', `${at}: ${file?.path}: snapshots of ${owner} are on it`)
  }
}

/** Under each of its names, of which a block device may have several. */
export function isSameFile(path: string): (other: string) => boolean {
  const one = statSync(path, { throwIfNoEntry: false })
  return (other) => {
    if (other === path) return true
    const status = statSync(other, { throwIfNoEntry: false })
    if (status === undefined || one === undefined) return false
    if (status.isBlockDevice() && one.isBlockDevice()) return status.rdev === one.rdev
    return status.ino === one.ino && status.dev === one.dev
  }
}
