import { createHash } from 'node:crypto'
import {
  chmodSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  statSync,
  utimesSync,
} from 'node:fs'
import { join, relative } from 'node:path'
import { errnoOf } from '../base/errors.ts'
import { buildRoot, projectRoot, temporaryRoot } from './project.ts'
import { withTemporaryFolder } from './temporary-folder.ts'

const cacheRoot = join(buildRoot, 'cache')

export interface Inputs {
  readonly files?: readonly string[]
  readonly values?: readonly string[]
}

/** Returns `build/cache/NAME-HASH`, which is renamed from the folder that `build` has filled, so it is always complete. */
export async function cached(
  name: string,
  inputs: Inputs,
  build: (folder: string) => Promise<void>,
): Promise<string> {
  const target = join(cacheRoot, `${name}-${hashInputs(inputs)}`)
  if (existsSync(target)) return markUsed(target)
  mkdirSync(cacheRoot, { recursive: true })
  await withTemporaryFolder(temporaryRoot, async (folder) => {
    await build(folder)
    chmodSync(folder, 0o755)
    try {
      renameSync(folder, target)
    } catch (error) {
      // Another process has built the same inputs meanwhile; its result is used.
      if (!existsSync(target)) throw error
    }
  })
  // An unpacked folder may be as old as its archive, and would be removed first.
  markUsed(target)
  await removeOld(name)
  return target
}

const KEPT_RESULTS = 4

function markUsed(target: string): string {
  const now = new Date()
  try {
    utimesSync(target, now, now)
  } catch (error) {
    // A user who may only read the cache cannot mark its results.
    if (errnoOf(error) !== 'EPERM' && errnoOf(error) !== 'EROFS') throw error
  }
  return target
}

async function removeOld(name: string): Promise<void> {
  const results = readdirSync(cacheRoot)
    .filter((entry) => entry.length === name.length + 17 && entry.startsWith(`${name}-`))
    .map((entry) => join(cacheRoot, entry))
    // Another process may remove the same results concurrently.
    .map((path) => ({ path, usedMs: statSync(path, { throwIfNoEntry: false })?.mtimeMs ?? 0 }))
    .sort((a, b) => b.usedMs - a.usedMs)
  for (const { path } of results.slice(KEPT_RESULTS)) {
    // Rename before the removal, so that a partly removed result is never visible.
    await withTemporaryFolder(temporaryRoot, async (folder) => {
      if (existsSync(path)) renameSync(path, join(folder, name))
    })
  }
}

function hashInputs(inputs: Inputs): string {
  const hash = createHash('sha256')
  for (const path of inputs.files ?? []) hashPath(hash, path)
  for (const value of inputs.values ?? []) hash.update(`value\0${value}\0`)
  return hash.digest('hex').slice(0, 16)
}

function hashPath(hash: ReturnType<typeof createHash>, path: string): void {
  if (statSync(path).isDirectory()) {
    for (const entry of readdirSync(path).sort()) hashPath(hash, join(path, entry))
    return
  }
  hash
    .update(`file\0${relative(projectRoot, path)}\0`)
    .update(readFileSync(path))
    .update('\0')
}
