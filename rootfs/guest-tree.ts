import { realpathSync } from 'node:fs'
import { buildAgent } from '../src/build/agent.ts'
import { agentTree, nodeTree } from './agent-files.ts'
import { treeOfFolder } from './folder.ts'
import type { Kernel } from './kernel.ts'
import { completeTree, type TreeEntry } from './tree.ts'
import { userlandTree } from './userland.ts'

/** The guest's root, in two parts because they change at different times. */
export interface GuestTree {
  /** Everything but the agent. */
  readonly base: readonly TreeEntry[]
  /** The agent and its siblings, but Node. */
  readonly agent: readonly TreeEntry[]
  /** Where the agent was built. */
  readonly agentFolder: string
}

/** What a guest with `kernel` has as its root, whichever form it comes in. */
export async function guestTree(kernel: Kernel, progress: (line: string) => void): Promise<GuestTree> {
  const agentFolder = realpathSync(await buildAgent())
  const base = [
    ...(await userlandTree(progress)),
    ...(await nodeTree(progress)),
    ...treeOfFolder(kernel.modules, `usr/lib/modules/${kernel.version}`),
  ]
  return { base, agent: agentTree(agentFolder), agentFolder }
}

/** One line an entry: its mode, its path with the kernel's version as KERNEL, and where a link points. */
export function describeTree(tree: readonly TreeEntry[], kernel: Kernel): string {
  const lines = completeTree(tree).map((entry) => {
    const mode = entry.mode.toString(8).padStart(4, '0')
    const target = entry.kind === 'link' ? ` -> ${entry.target}` : ''
    return `${mode} ${entry.path.replace(kernel.version, 'KERNEL')}${entry.kind === 'directory' ? '/' : ''}${target}\n`
  })
  return lines.join('')
}
