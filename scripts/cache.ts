import { createHash } from 'node:crypto'
import { existsSync, mkdirSync, readdirSync, readFileSync, renameSync, rmSync, statSync } from 'node:fs'
import { join, relative } from 'node:path'

/** The top folder of the project. */
export const projectRoot = join(import.meta.dirname, '..')
/** Everything that is built lands below here; removing it is always safe. */
export const buildRoot = join(projectRoot, 'build')

/** What a build step depends on: files or folders (by content) and plain values. */
export interface Inputs {
  readonly files?: readonly string[]
  readonly values?: readonly string[]
}

/**
 * The folder `build/cache/NAME-HASH`, built by `build` when it is not there. `build` fills a temporary folder
 * that is renamed once it is complete, so a half-built result is never seen; older results of NAME are left alone.
 */
export async function cached(
  name: string,
  inputs: Inputs,
  build: (folder: string) => Promise<void>,
): Promise<string> {
  const target = join(buildRoot, 'cache', `${name}-${hashInputs(inputs)}`)
  if (existsSync(target)) return target
  const temporary = `${target}.tmp-${process.pid}`
  rmSync(temporary, { recursive: true, force: true })
  mkdirSync(temporary, { recursive: true })
  try {
    await build(temporary)
    try {
      renameSync(temporary, target)
    } catch (error) {
      // Somebody else built the same thing meanwhile: theirs is as good as ours.
      if (!existsSync(target)) throw error
    }
  } finally {
    rmSync(temporary, { recursive: true, force: true })
  }
  return target
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
