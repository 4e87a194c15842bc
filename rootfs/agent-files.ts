import { copyFileSync } from 'node:fs'
import { join } from 'node:path'
import { cached } from '../src/build/cache.ts'
import { nodeManifest, pinnedNode } from '../src/build/project.ts'
import { tool } from '../src/build/tool.ts'
import { treeOfFolder } from './folder.ts'
import { fileFrom, link, type TreeEntry } from './tree.ts'

/** Where the agent and its siblings lie in a guest. */
export const agentFolder = 'usr/lib/microvm-agent'

/** The pinned Node of the agent's folder, without its symbols. */
export async function nodeTree(progress: (line: string) => void): Promise<readonly TreeEntry[]> {
  return [fileFrom(`${agentFolder}/node`, await strippedNode(progress), 0o755)]
}

/** The file that {@link nodeTree} puts into the image. */
export async function strippedNode(progress: (line: string) => void): Promise<string> {
  // The package's manifest names the exact version; reading 120 MB for a hash at every start would take too long.
  const folder = await cached('stripped-node', { files: [nodeManifest] }, async (target) => {
    progress('stripping Node')
    copyFileSync(pinnedNode(), join(target, 'node'))
    await tool('strip', ['--strip-all', join(target, 'node')], { debianPackage: 'binutils' })
  })
  return join(folder, 'node')
}

/** The files of the built folder `agent`, which links Node instead of holding it, and vminit as /sbin/init. */
export function agentTree(agent: string): readonly TreeEntry[] {
  const files = treeOfFolder(agent, agentFolder).filter((entry) => entry.kind === 'file')
  return [...files, link('usr/sbin/init', '../lib/microvm-agent/vminit')]
}
