import { statSync } from 'node:fs'
import { AgentError, messageOf } from '../../../base/errors.ts'
import type { Backend, Layer, Specification } from '../../../gen/microvm/instance/v1/instance.ts'
import type { InstanceRecord } from '../../../gen/microvm/instance/v1/records.ts'
import { pathOf } from '../../spec/component-path.ts'
import { nodeNames, specKey } from '../../spec/spec-key.ts'

/** An instance, as far as it may have a disk open. */
interface DiskUser {
  readonly key: string
  readonly record: Readonly<InstanceRecord>
  readonly context: { readonly machine: unknown }
}

/** QEMU's words (file-posix.c); the hint with the path is on its stderr only. */
const LOCK = /Failed to get (?:shared )?"[\w-]+" lock/
const HINT = /Is another process using the image \[(.*)\]\?/

/** The holder's words for a file that QEMU maps (native/holder/children/walls.c). */
const MAP = /^qemu: (.*): EBUSY$/

/** FAILED_PRECONDITION with who uses the file that QEMU could not lock; other errors as they are. */
export function explainLock(
  error: unknown,
  asking: { readonly path?: string | undefined; readonly userOf: (path: string) => string },
): unknown {
  const text = messageOf(error)
  const path = HINT.exec(text)?.[1] ?? MAP.exec(text)?.[1] ?? (LOCK.test(text) ? asking.path : undefined)
  if (path === undefined) return error
  return new AgentError('FAILED_PRECONDITION', `${path}: in use by ${asking.userOf(path)}`)
}

/** QEMU's words (block/crypto.c), after the option of the disk. */
const UNLOCK =
  /node-name=([^,:]+).*: (?:Invalid password, cannot unlock any keyslot|Volume is not in LUKS format)/

/** FAILED_PRECONDITION with the field when a disk cannot be opened by its secret; other errors as they are. */
export function explainSecret(error: unknown, { backends = {} }: Partial<Specification>): unknown {
  const text = messageOf(error)
  const node = UNLOCK.exec(text)?.[1]
  const key = Object.keys(backends).find((name) => nodeNames(specKey(name)).format === node)
  if (key === undefined) return error
  const isLuks = !text.includes('not in LUKS format')
  const at = pathOf('backends', key, 'file', ...(isLuks ? ['encryption', 'secret'] : ['path']))
  const { path = '', encryption } = backends[key]?.file ?? {}
  const told = isLuks ? `${encryption?.secret} does not open ${path}` : `${path}: not a LUKS image`
  return new AgentError('FAILED_PRECONDITION', `${at}: ${told}`)
}

/** Who has a disk in the file at `path`, as far as the instance `asking` may know of others. */
export function diskUser(path: string, asking: DiskUser, all: Iterable<DiskUser>): string {
  const isHere = isSameFile(path)
  const disksHere = ({ record }: DiskUser) =>
    Object.values(record.specification?.backends ?? {}).filter(({ file }) => file && isHere(file.path))
  for (const other of all) {
    if (other === asking || other.context.machine === undefined || disksHere(other).length === 0) continue
    const [owner, tenant] = [other, asking].map(({ record }) => record.properties?.tenant ?? '')
    return tenant === '' || tenant === owner ? `instance ${other.key}` : 'another process'
  }
  return disksHere(asking).length > 1 ? 'another disk of the machine' : 'another process'
}

/** Refuses files that layers of other instances are on, which keep no lock while they are stopped. */
export function refuseOthersBases(
  backends: Readonly<Record<string, Backend>>,
  asking: DiskUser,
  all: Iterable<DiskUser>,
): void {
  const tenant = asking.record.properties?.tenant ?? ''
  for (const other of all) {
    if (other === asking) continue
    const isKnown = tenant === '' || tenant === other.record.properties?.tenant
    refuseBases(backends, other.record.layers, isKnown ? `instance ${other.key}` : 'another instance')
  }
}

/** Throws FAILED_PRECONDITION for a file that layers are on: what was written there would be in their snapshots. */
export function refuseBases(
  backends: Readonly<Record<string, Backend>>,
  layers: readonly Layer[],
  owner: string,
): void {
  for (const [key, { file }] of Object.entries(backends)) {
    const isHere = file && layers.length > 0 ? isSameFile(file.path) : undefined
    if (isHere === undefined || !layers.some(({ base }) => isHere(base))) continue
    const at = pathOf('backends', key, 'file', 'path')
    throw new AgentError('FAILED_PRECONDITION', `${at}: ${file?.path}: snapshots of ${owner} are on it`)
  }
}

/** Under each of its names, of which a block device may have several. */
function isSameFile(path: string): (other: string) => boolean {
  const one = statSync(path, { throwIfNoEntry: false })
  return (other) => {
    if (other === path) return true
    const status = statSync(other, { throwIfNoEntry: false })
    if (status === undefined || one === undefined) return false
    if (status.isBlockDevice() && one.isBlockDevice()) return status.rdev === one.rdev
    return status.ino === one.ino && status.dev === one.dev
  }
}
