import { randomUUID } from 'node:crypto'
import { readFileSync } from 'node:fs'
import { copyFile, link, mkdir, open, readdir, realpath, rename, rm, stat } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import { AgentError, errnoOf } from '../../base/errors.ts'
import { Operation, type SavedMachine } from '../../gen/microvm/instance/v1/instance.ts'
import { CLAIM_FILE, readClaim, type SavedClaim } from '../instance/record/saved-claim.ts'
import { sizeOfBase } from '../instance/snapshots/check-layers.ts'
import { fileError } from '../instance/snapshots/overlay-file.ts'
import {
  FILES,
  type HostFacts,
  type Manifest,
  type OutsideFile,
  readManifest,
  writeManifest,
} from './manifest.ts'
import { checkHashed, factsOf, sampleOf } from './memory-file.ts'

/** Where a machine is saved before it gets its name. No name of a saved machine begins so. */
export function workOf(folder: string, id: string): string {
  return join(dirname(folder), `${WORK}new-${id}`)
}

/** What was in its place before: what is left of one that was resumed. */
function oldOf(folder: string, id: string): string {
  return join(dirname(folder), `${WORK}old-${id}`)
}

const WORK = '+'

/** Begins the name of a machine that is saved only while clones of it are made. */
export const PASSING = `${WORK}passing-`

/** Removes what a save leaves that was cut short. */
export async function removeWork(folder: string, id: string): Promise<void> {
  for (const path of [workOf(folder, id), oldOf(folder, id)]) await rm(path, { recursive: true, force: true })
}

/**
 * Throws ALREADY_EXISTS unless the folder is not there, or has no more than the note of what a saved machine has become: nothing else
 * may be removed.
 */
export async function checkFree(folder: string): Promise<void> {
  const entries = await readdir(folder, { recursive: true, withFileTypes: true }).catch((error) => {
    if (errnoOf(error) !== 'ENOENT') throw fileError(folder, error)
    return undefined
  })
  if (entries === undefined) return
  const fail = (text: string) => new AgentError('ALREADY_EXISTS', `${folder}: ${text}`)
  const isSavedOne = await readManifest(folder).then(
    () => true,
    () => false,
  )
  if (!isSavedOne) throw fail('there already, and no saved machine, want a new folder')
  const claim = await readClaim(folder)
  if (claim === undefined) throw fail('a saved machine is there already')
  const others = entries.filter((entry) => !entry.isDirectory() && !isNote(entry.name))
  if (others.some(({ name }) => name === FILES.state)) throw fail(beingResumed(claim))
  if (others.length > 0) throw fail('has files of others, want a new folder')
}

function isNote(name: string): boolean {
  return name === FILES.manifest || name.startsWith(CLAIM_FILE)
}

function beingResumed({ key }: SavedClaim): string {
  return `being resumed, as instance ${key}`
}

/** Throws FAILED_PRECONDITION for a machine that is being resumed. */
export async function checkRemovable(folder: string): Promise<void> {
  const claim = await readClaim(folder)
  if (claim === undefined || !(await isOpen(folder))) return
  throw new AgentError('FAILED_PRECONDITION', `${folder}: ${beingResumed(claim)}`)
}

/** Whether the files of a machine are there, which is claimed or not. */
export async function isOpen(folder: string): Promise<boolean> {
  return await stat(join(folder, FILES.state)).then(
    () => true,
    () => false,
  )
}

/**
 * Writes the manifest, and gives the folder its name: from then on there is a saved machine. What goes wrong afterwards is told to
 * `warn`.
 */
export async function publish(
  folder: string,
  manifest: Manifest,
  { warn, sync = syncFolder }: { readonly warn: (error: unknown) => void; readonly sync?: typeof syncFolder },
): Promise<void> {
  const [work, old] = [workOf(folder, manifest.id), oldOf(folder, manifest.id)]
  await writeManifest(work, manifest)
  for (const part of [join(work, 'disks'), join(work, 'streams'), work]) await sync(part)
  await checkFree(folder)
  await rename(folder, old).catch(ignore('ENOENT'))
  await rename(work, folder)
  await sync(dirname(folder)).catch(warn)
  await rm(old, { recursive: true, force: true }).catch(warn)
}

function ignore(errno: string): (error: unknown) => void {
  return (error) => {
    if (errnoOf(error) !== errno) throw error
  }
}

async function syncFolder(path: string): Promise<void> {
  const folder = await open(path).catch(ignore('ENOENT'))
  await folder?.sync()
  await folder?.close()
}

/** Whether the folder has this very machine. */
export async function isSaved(folder: string, id: string): Promise<boolean> {
  return await readManifest(folder).then(
    (manifest) => manifest.id === id,
    () => false,
  )
}

/** Throws FAILED_PRECONDITION naming the first file that is missing or another one. */
export async function checkContent(folder: string, { files }: Manifest): Promise<void> {
  for (const [name, { sizeBytes, digest }] of Object.entries(files)) {
    const path = join(folder, name)
    const fail = (what: string) => new AgentError('FAILED_PRECONDITION', `${path}: ${what}`)
    const status = await stat(path).catch(() => undefined)
    if (status === undefined) throw fail('missing')
    if ((await realpath(path)) !== join(await realpath(folder), name) || !status.isFile())
      throw fail('want a file of its own, no link')
    if (status.size !== sizeBytes) throw fail(`${status.size} bytes, want ${sizeBytes}`)
    if ((await factsOf(path)).digest !== digest) throw fail('damaged: its digest is another one')
  }
}

/** Throws FAILED_PRECONDITION where this host would make another machine. */
export function checkHost(folder: string, { host: saved }: Pick<Manifest, 'host'>, host: HostFacts): void {
  const names: readonly (keyof HostFacts)[] = ['qemu', 'acceleration', 'cpu']
  const other = names.find((name) => saved[name] !== host[name])
  if (other === undefined) return
  const text = `saved with ${other} ${saved[other] || '(none)'}, this host has ${host[other] || '(none)'}`
  throw new AgentError('FAILED_PRECONDITION', `${folder}: ${text}`)
}

/** Of the CPU of this host, for guests that run on it. */
export function hostCpu(acceleration: string): string {
  if (acceleration !== 'kvm') return ''
  const text = readFileSync('/proc/cpuinfo', 'utf8')
  return ['vendor_id', 'cpu family', 'model', 'stepping', 'flags']
    .map((name) => new RegExp(`^${name}\\s*: (.*)$`, 'm').exec(text)?.[1] ?? '')
    .join('/')
}

/** The present facts of a file outside the folder. */
export async function outsideFacts(
  file: Pick<OutsideFile, 'field' | 'backend' | 'path'>,
): Promise<OutsideFile> {
  const status = await stat(file.path, { bigint: true }).catch((error) => {
    throw new AgentError('FAILED_PRECONDITION', `${file.field}: ${file.path}: ${errnoOf(error)}`)
  })
  const isBoot = file.backend === ''
  const most = isBoot ? MOST_BOOT_BYTES : Number.POSITIVE_INFINITY
  checkHashed(`${file.field}: ${file.path}`, status, most)
  return {
    ...file,
    sizeBytes: status.isBlockDevice() ? await bytesOf(file.path) : Number(status.size),
    changed: isBoot || status.isBlockDevice() ? '' : `${status.mtimeNs}`,
    ...(!isBoot && { inode: `${status.dev}:${status.ino}` }),
    digest: isBoot ? (await factsOf(file.path, most)).digest : '',
  }
}

/** QEMU hands files to a guest by sizes of 32 bits (fw_cfg). */
const MOST_BOOT_BYTES = 2 ** 32 - 1

/**
 * Throws FAILED_PRECONDITION for a file that is not as it was. A copy elsewhere has another time, and a `shared` one is still being
 * written.
 */
export async function checkOutside(saved: OutsideFile, path: string, how?: 'shared'): Promise<void> {
  const { field } = saved
  const { sample, ...known } = saved
  const now = await outsideFacts({ ...known, path })
  const fail = (what: string) => new AgentError('FAILED_PRECONDITION', `${field}: ${path}: ${what}`)
  // Earlier versions have recorded none of a device.
  if (saved.sizeBytes !== 0 && now.sizeBytes !== saved.sizeBytes)
    throw fail(`${now.sizeBytes} bytes, want ${saved.sizeBytes}`)
  if (now.digest !== saved.digest) throw fail('another file than the machine was saved with')
  if (how === 'shared') return
  if (path === saved.path && now.changed !== saved.changed)
    throw fail('was written since the machine was saved: its guest would see another disk')
  // The same file shows by its time that it was written; of a device, and of a copy, some blocks are compared.
  const isSame = path === saved.path && now.inode === saved.inode && now.changed !== ''
  if (isSame || sample === undefined || sample === '') return
  const found = await sampleOf(path, await bytesOf(path))
  if (found !== '' && found !== sample) throw fail('another disk than the machine was saved with')
}

/** With a digest of some blocks of the disk, which is not written any more. */
export async function withSample(disk: OutsideFile): Promise<OutsideFile> {
  return { ...disk, sample: await sampleOf(disk.path, await bytesOf(disk.path)) }
}

/** Of a file, or of a block device, where stat has none. */
async function bytesOf(path: string): Promise<number> {
  return Number(await sizeOfBase({ base: path, qcow2Base: false, secret: '' }))
}

/** Brings a file of a saved machine elsewhere; where both names can be of one file, and it stays as it is, they are. */
export async function bring(from: string, to: string, how: 'link' | 'copy'): Promise<void> {
  try {
    await mkdir(dirname(to), { recursive: true, mode: 0o700 })
    await rm(to, { force: true })
    if (how === 'link' && (await isLinked(from, to))) return
    await copyFile(from, to)
    await using file = await open(to, 'r+')
    await file.chmod(0o600)
    await file.sync()
  } catch (error) {
    throw fileError(to, error)
  }
}

/** Whether another name of the file could be made. */
async function isLinked(from: string, to: string): Promise<boolean> {
  try {
    await link(from, to)
    return true
  } catch (error) {
    if (!['EXDEV', 'EPERM', 'EMLINK'].includes(errnoOf(error) ?? '')) throw error
    return false
  }
}

/** As answers have it. */
export async function describeSaved(folder: string, manifest: Manifest): Promise<SavedMachine> {
  const { id, name, tenant, key, createdMs, files, host } = manifest
  const claim = await readClaim(folder)
  const isSpent = claim !== undefined && !(await isOpen(folder))
  return {
    ...{ name, tenant, key, id, folder, qemu: host.qemu, createdMs: BigInt(createdMs) },
    sizeBytes: isSpent ? 0n : BigInt(Object.values(files).reduce((sum, file) => sum + file.sizeBytes, 0)),
    resumedAs: claim === undefined ? '' : claim.key,
    ...{ steps: [], stoppedUs: 0n, waitingUs: 0n, operation: operationOf(manifest) },
  }
}

/** Its suspend; undefined where an earlier version has saved it. */
export function operationOf({ operation }: Manifest): Operation | undefined {
  return operation === undefined ? undefined : Operation.decode(Buffer.from(operation, 'base64'))
}

/** The saved machines in the folder of a store. */
export async function savedIn(store: string): Promise<readonly string[]> {
  const names = await namesIn(store)
  return names.filter((name) => !name.startsWith(WORK)).map((name) => join(store, name))
}

export async function namesIn(folder: string): Promise<readonly string[]> {
  return await readdir(folder).catch((error) => {
    ignore('ENOENT')(error)
    return []
  })
}

/** Removes a saved machine: whole, for its name is gone first. */
export async function removeSaved(folder: string): Promise<void> {
  const old = oldOf(folder, randomUUID())
  await rename(folder, old)
  await rm(old, { recursive: true, force: true })
}

/** Removes what an earlier daemon has not removed to its end. */
export async function sweep(store: string, isOwn: (name: string) => boolean): Promise<void> {
  for (const name of await namesIn(store))
    if (name.startsWith(`${WORK}old-`) || (name.startsWith(PASSING) && !isOwn(name)))
      await rm(join(store, name), { recursive: true, force: true })
}

/** Removes what a machine that goes on needs no more: the memory has keys. */
export async function removeContent(folder: string, { files }: Manifest): Promise<void> {
  for (const name of Object.keys(files)) await rm(join(folder, name), { force: true })
}

/** Removes what a resume has left that was cut short once its machine ran. */
export async function removeLeft(folder: string, own: Omit<SavedClaim, 'key'>): Promise<void> {
  const claim = await readClaim(folder).catch(() => undefined)
  if (claim?.id !== own.id || claim.folder !== own.folder || !(await isOpen(folder))) return
  await removeContent(folder, await readManifest(folder))
}
