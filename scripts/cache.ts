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
import { withTemporaryFolder } from './temporary-folder.ts'

/** The top folder of the project. */
export const projectRoot = join(import.meta.dirname, '..')
/** Everything that is built lands below here; removing it is always safe. */
export const buildRoot = join(projectRoot, 'build')
/** For temporary folders of build steps: a result can be renamed from here to where it belongs. */
export const temporaryRoot = join(buildRoot, 'tmp')
const cacheRoot = join(buildRoot, 'cache')

/** What a build step depends on: files or folders (by content) and plain values. */
export interface Inputs {
  readonly files?: readonly string[]
  readonly values?: readonly string[]
}

/**
 * The folder `build/cache/NAME-HASH`, built by `build` when it is not there. `build` fills a temporary folder
 * that is renamed once it is complete, so a half-built result is never seen. The results of NAME that were used last
 * are kept, the others removed.
 */
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
      // Somebody else built the same thing meanwhile: theirs is as good as ours.
      if (!existsSync(target)) throw error
    }
  })
  await removeOld(name)
  return target
}

/** So many results of one name: enough to go back and forth between a few states of the source. */
const KEPT_RESULTS = 4

function markUsed(target: string): string {
  const now = new Date()
  utimesSync(target, now, now)
  return target
}

async function removeOld(name: string): Promise<void> {
  const results = readdirSync(cacheRoot)
    .filter((entry) => entry.length === name.length + 17 && entry.startsWith(`${name}-`))
    .map((entry) => join(cacheRoot, entry))
    // Another process may remove the same ones at this moment.
    .map((path) => ({ path, usedMs: statSync(path, { throwIfNoEntry: false })?.mtimeMs ?? 0 }))
    .sort((a, b) => b.usedMs - a.usedMs)
  for (const { path } of results.slice(KEPT_RESULTS)) {
    // Out of sight first: a half-removed result must not be found either.
    await withTemporaryFolder(temporaryRoot, async (folder) => {
      if (existsSync(path)) renameSync(path, join(folder, name))
    })
  }
}

/** 16 hexadecimal digits that change with any content, name or value of `inputs`. */
export function hashInputs(inputs: Inputs): string {
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
