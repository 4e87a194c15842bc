import { createHash } from 'node:crypto'
import { readFile, writeFile } from 'node:fs/promises'
import { isAbsolute, join } from 'node:path'
import { AgentError, errnoOf } from '../../base/errors.ts'
import type { StandingSince } from '../instance/record/timeline.ts'
import { fileError } from '../instance/snapshots/overlay-file.ts'
import type { MemoryForm } from './machine-state.ts'
import type { FileFacts } from './memory-file.ts'

/** The files of a saved machine, in its folder. */
export const FILES = {
  manifest: 'manifest.json',
  /** What this host's side knows of it: an envelope of proto/state/host. */
  state: 'state.binpb',
  memory: 'memory',
  devices: 'devices',
} as const

/** A file that is not in the folder, and has to be the same: a disk, or what the machine was booted from. */
export interface OutsideFile {
  /** The field that names it. */
  readonly field: string
  /** Key of its backend; '' for one of the board. */
  readonly backend: string
  readonly path: string
  readonly sizeBytes: number
  /** A disk shows by its time that it was written; of a file that machines only boot from, this is empty, and the digest counts. */
  readonly changed: string
  readonly digest: string
  /** Of a disk: device and number of its inode, and a digest of some of its blocks. Absent in what earlier versions have saved. */
  readonly inode?: string
  readonly sample?: string
}

export interface SavedStream {
  readonly port: number
  readonly container: string
  readonly exec: string
  readonly stream: string
  /** The guest is going to connect again. */
  readonly isLive: boolean
}

/** What a folder of a saved machine has, and what can take it in. */
export interface Manifest {
  readonly version: 1
  readonly id: string
  readonly name: string
  readonly tenant: string
  readonly key: string
  readonly createdMs: number
  readonly host: HostFacts
  readonly state: 'running' | 'paused'
  readonly memoryForm: MemoryForm
  /** Other machines have its disks' own files too. */
  readonly isClone: boolean
  /** Whether the guest's agent is to be told of the restore. */
  readonly hasAgent: boolean
  /** An encoded PlugRequest in base64 of the device that was unplugged, or ''. */
  readonly unplugged: string
  readonly files: Readonly<Record<string, FileFacts>>
  readonly outside: readonly OutsideFile[]
  readonly streams: readonly SavedStream[]
  /** An encoded Operation in base64: its suspend until now. Absent in those of earlier versions, like what follows. */
  readonly operation?: string
  readonly standing?: StandingSince
}

/** What the state of a machine depends on, besides the machine. */
export interface HostFacts {
  readonly qemu: string
  readonly acceleration: string
  /** The CPU of the host, where the guest runs on it. */
  readonly cpu: string
}

const VERSION = 1

/** Writes the manifest to a new file, which is on the disk then. */
export async function writeManifest(folder: string, manifest: Manifest): Promise<void> {
  const text = `${JSON.stringify({ ...manifest, digest: digestOf(manifest) })}\n`
  await writeFile(join(folder, FILES.manifest), text, { flag: 'wx', mode: 0o600, flush: true })
}

/** Rejects with NOT_FOUND, or FAILED_PRECONDITION for what this version does not read. */
export async function readManifest(folder: string): Promise<Manifest> {
  const path = join(folder, FILES.manifest)
  const text = await readFile(path, 'utf8').catch((error) => {
    if (['ENOENT', 'ENOTDIR'].includes(errnoOf(error) ?? ''))
      throw new AgentError('NOT_FOUND', `${folder}: no saved machine`)
    throw fileError(path, error)
  })
  const fail = (what: string) => new AgentError('FAILED_PRECONDITION', `${path}: ${what}`)
  const all = parsed(text)
  if (!isObject(all)) throw fail('damaged')
  const { digest, ...manifest } = all
  if (manifest.version !== VERSION) throw fail(`version ${String(manifest.version)}, want ${VERSION}`)
  const damaged = Object.entries(FIELDS).find(([name, isRight]) => !isRight(manifest[name]))
  if (damaged !== undefined) throw fail(`damaged: ${damaged[0]}`)
  const known = manifest as unknown as Manifest
  const missing = needed(known).find((name) => !Object.hasOwn(known.files, name))
  if (missing !== undefined) throw fail(`damaged: files: no ${missing}`)
  if (digest !== digestOf(known)) throw fail('damaged: its digest is another one')
  return known
}

function needed({ memoryForm }: Manifest): readonly string[] {
  return [FILES.state, FILES.devices, ...(memoryForm === 'file' ? [FILES.memory] : [])]
}

function digestOf(manifest: Manifest): string {
  return createHash('sha256').update(JSON.stringify(manifest)).digest('hex')
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    return undefined
  }
}

type Check = (value: unknown) => boolean

const isObject = (value: unknown): value is Readonly<Record<string, unknown>> =>
  typeof value === 'object' && value !== null && !Array.isArray(value)
const isText: Check = (value) => typeof value === 'string'
const isMaybeText: Check = (value) => value === undefined || isText(value)
const isCount: Check = (value) => Number.isSafeInteger(value) && Number(value) >= 0
const isFlag: Check = (value) => typeof value === 'boolean'
const isPort: Check = (value) => isCount(value) && Number(value) < 2 ** 32
const isLike =
  (form: RegExp): Check =>
  (value) =>
    typeof value === 'string' && form.test(value)
const isList =
  (isEach: Check): Check =>
  (value) =>
    Array.isArray(value) && value.every(isEach)
const has =
  (fields: Readonly<Record<string, Check>>): Check =>
  (value) =>
    isObject(value) && Object.entries(fields).every(([name, isRight]) => isRight(value[name]))

/** Their names become paths, so that no others are taken. */
const FILE_NAME =
  /^(memory|devices|state\.binpb|console\.ring|uefi-variables\.fd|disks\/\d+\.qcow2|streams\/\d+\.ring)$/

const isFacts = has({ sizeBytes: isCount, digest: isLike(/^[0-9a-f]{64}$/) })

const isBase64 = isLike(/^[A-Za-z0-9+/]*=*$/)

const FIELDS: Readonly<Record<Exclude<keyof Manifest, 'version'>, Check>> = {
  id: isLike(/^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/),
  ...{ name: isText, tenant: isText, key: isText, createdMs: isCount },
  host: has({ qemu: isText, acceleration: isText, cpu: isText }),
  state: isLike(/^(running|paused)$/),
  memoryForm: isLike(/^(stream|file)$/),
  ...{ isClone: isFlag, hasAgent: isFlag },
  unplugged: isBase64,
  files: (files) =>
    isObject(files) && Object.entries(files).every(([name, facts]) => FILE_NAME.test(name) && isFacts(facts)),
  outside: isList(
    has({
      ...{ field: isText, backend: isText, sizeBytes: isCount, changed: isText, digest: isText },
      path: (path) => isText(path) && isAbsolute(String(path)),
      ...{ inode: isMaybeText, sample: isMaybeText },
    }),
  ),
  streams: isList(has({ port: isPort, container: isText, exec: isText, stream: isText, isLive: isFlag })),
  operation: (value) => value === undefined || isBase64(value),
  standing: (value) => value === undefined || has({ stoppedMs: isCount, detachedMs: isCount })(value),
}
