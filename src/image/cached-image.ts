import { createHash } from 'node:crypto'
import { readFileSync } from 'node:fs'
import { join, relative } from 'node:path'
import { cached } from '../build/cache.ts'
import { buildRoot } from '../build/project.ts'
import { zstdLevel } from './formats/cpio.ts'
import type { Content, TreeEntry } from './formats/tree.ts'

/** The code that turns a tree into bytes: a change may give another image of the same tree. */
const RECIPE = ['tree.ts', 'cpio.ts', 'tar.ts', 'file-systems.ts']

/** The file `name` that `write` makes of `tree`, or an earlier result for the same tree. */
export async function cachedImage(
  name: string,
  tree: readonly TreeEntry[],
  write: (path: string) => Promise<void>,
): Promise<string> {
  const files = RECIPE.map((file) => join(import.meta.dirname, 'formats', file))
  const values = [treeHash(tree), ...(name.endsWith('.zst') ? [zstdLevel()] : [])]
  const folder = await cached(name, { files, values }, (target) => write(join(target, name)))
  return join(folder, name)
}

/** A hash that changes with any entry of `tree`. */
function treeHash(tree: readonly TreeEntry[]): string {
  const hash = createHash('sha256')
  for (const entry of tree) {
    const { content, ...rest } = { content: undefined, ...entry }
    hash.update(`${JSON.stringify(rest)}\0${content === undefined ? '' : contentHash(content)}\0`)
  }
  return hash.digest('hex')
}

/** Files of the build cache never change, and the names of their folders identify their inputs. */
function contentHash(content: Content): string {
  if ('source' in content) {
    const cacheName = relative(join(buildRoot, 'cache'), content.source)
    if (!cacheName.startsWith('..')) return cacheName
  }
  return createHash('sha256')
    .update('source' in content ? readFileSync(content.source) : content.bytes)
    .digest('hex')
}
