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
import { buildRoot, projectRoot, temporaryRoot } from './project.ts'
import { withTemporaryFolder } from './temporary-folder.ts'

const cacheRoot = join(buildRoot, 'cache')

/** What a build step depends on: files or folders (by content) and plain values. */
export interface Inputs {
  readonly files?: readonly string[]
  readonly values?: readonly string[]
}

/**
 * The folder `build/cache/NAME-HASH`; `build` builds it when it does not exist. `build` fills a temporary folder that is
 * renamed once it is complete, so a partial result is never visible. The last used results of NAME are kept, older ones
 * are removed.
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
      // Another process built the same inputs in the meantime, so its result is used.
      if (!existsSync(target)) throw error
    }
  })
  await removeOld(name)
  return target
}

/** Results kept per name: enough to switch between a few states of the source without building again. */
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
    // Another process may remove the same results concurrently.
    .map((path) => ({ path, usedMs: statSync(path, { throwIfNoEntry: false })?.mtimeMs ?? 0 }))
    .sort((a, b) => b.usedMs - a.usedMs)
  for (const { path } of results.slice(KEPT_RESULTS)) {
    // Rename before removal, so that a partly removed result is not visible either.
    await withTemporaryFolder(temporaryRoot, async (folder) => {
      if (existsSync(path)) renameSync(path, join(folder, name))
    })
  }
}

/** 16 hexadecimal digits that change with any content, name or value of `inputs`. */
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
