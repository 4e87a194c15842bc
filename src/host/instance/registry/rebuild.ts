import {
  closeSync,
  existsSync,
  fsyncSync,
  lstatSync,
  openSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
} from 'node:fs'
import { errnoOf, messageOf } from '../../../base/errors.ts'
import { MAX_PAYLOAD_BYTES } from './check-changes.ts'
import { isEmpty, openDatabase } from './database.ts'
import type { Change } from './registry.ts'
import { damaged } from './sqlite-errors.ts'

export interface RebuildReport {
  /** Keys of the instances that the new registry has. */
  readonly instances: readonly string[]
  readonly unreadable: readonly { readonly path: string; readonly reason: string }[]
  /** Where the old registry is now; undefined when there was none. */
  readonly keptAside: string | undefined
  /** What a caller has to know, in sentences. */
  readonly lost: string
}

const LOST =
  'Recorded calls are lost: a call that repeats an idempotency key is carried out anew. ' +
  'Changes of instances since their start, steps, streams and settings are lost.'

/** Files that belong to a database, by what SQLite adds to its name. */
const SUFFIXES = ['', '-wal', '-journal'] as const

export function registryPath(stateFolder: string): string {
  return `${stateFolder}/registry.sqlite`
}

/** Throws when there is no registry although instances have left their specifications. */
export function findLoss(stateFolder: string): void {
  const path = registryPath(stateFolder)
  if (!isEmpty(path)) return
  const count = specificationPaths(stateFolder).length
  if (count > 0) throw damaged(path, `missing or empty, but instances has ${count} specifications`)
}

/** Makes the registry anew from the specifications of the instances. The caller has the folder's lock. */
export async function rebuild(stateFolder: string): Promise<RebuildReport> {
  const path = registryPath(stateFolder)
  const records = new Map<string, Uint8Array>()
  const unreadable: { path: string; reason: string }[] = []
  for (const file of specificationPaths(stateFolder)) {
    try {
      const { key, payload } = await readRecord(file)
      if (records.has(key)) throw new Error(`instance "${key}": has another specification`)
      records.set(key, payload)
    } catch (error) {
      unreadable.push({ path: file, reason: messageOf(error) })
    }
  }
  const made = `${path}.new`
  for (const suffix of SUFFIXES) rmSync(`${made}${suffix}`, { force: true })
  writeRecords(made, records)
  const keptAside = moveAside(path)
  renameSync(made, path)
  syncFolder(stateFolder)
  return { instances: [...records.keys()], unreadable, keptAside, lost: LOST }
}

function specificationPaths(stateFolder: string): readonly string[] {
  const folder = `${stateFolder}/instances`
  try {
    return readdirSync(folder)
      .toSorted()
      .map((name) => `${folder}/${name}/specification.binpb`)
      .filter(existsSync)
  } catch (error) {
    if (errnoOf(error) === 'ENOENT') return []
    throw error
  }
}

async function readRecord(path: string): Promise<{ readonly key: string; readonly payload: Uint8Array }> {
  const { InstanceRecord } = await import('../../../gen/microvm/instance/v1/records.ts')
  const stat = lstatSync(path)
  if (!stat.isFile()) throw new Error('want a regular file')
  const { size } = stat
  if (size > MAX_PAYLOAD_BYTES) throw new Error(`${size} bytes, want at most ${MAX_PAYLOAD_BYTES}`)
  const payload = readFileSync(path)
  const { properties, specification, awaiting } = InstanceRecord.decode(payload)
  if (properties === undefined || properties.key === '') throw new Error('properties.key: missing')
  if (specification === undefined && awaiting === undefined) throw new Error('specification: missing')
  return { key: properties.key, payload }
}

function writeRecords(path: string, records: ReadonlyMap<string, Uint8Array>): void {
  const database = openDatabase(path)
  try {
    const changes = [...records].map(([key, payload]): Change => ({ table: 'instances', key, payload }))
    database.write(changes)
  } finally {
    database.close()
  }
}

function moveAside(path: string): string | undefined {
  const aside = `${path}.damaged-${new Date().toISOString().replaceAll(':', '-')}`
  // The database goes last: with only a log left, the next start would make an empty registry.
  for (const suffix of SUFFIXES.toReversed()) {
    try {
      renameSync(`${path}${suffix}`, `${aside}${suffix}`)
    } catch (error) {
      if (errnoOf(error) !== 'ENOENT') throw error
      if (suffix === '') return undefined
    }
  }
  return aside
}

function syncFolder(path: string): void {
  const folder = openSync(path, 'r')
  fsyncSync(folder)
  closeSync(folder)
}
