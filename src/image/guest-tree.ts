import { copyFileSync, realpathSync } from 'node:fs'
import { join } from 'node:path'
import { buildAgent } from '../build/agent.ts'
import { cached } from '../build/cache.ts'
import { nodeManifest, pinnedNode, projectRoot } from '../build/project.ts'
import { tool } from '../build/tool.ts'
import { ensureBusybox } from './busybox.ts'
import { completeTree, fileFrom, fileOf, link, type TreeEntry, treeOfFolder } from './formats/tree.ts'
import { ensureKernel, type Kernel } from './kernel/kernel.ts'
import { DEFAULT_KERNEL } from './packages.ts'
import { ensurePolicyAddon } from './policy-addon.ts'
import { userlandFolder } from './userland.ts'

/** The folder of the agent in a guest. */
const agentFolder = 'usr/lib/microvm-agent'

const POLICY_FILE = 'etc/kata-opa/default-policy.rego'

/** The recorded list of the files in the guest's root. */
export const fileList = join(projectRoot, 'rootfs/files.txt')

/** The guest's root in two parts: the agent changes more often than the base. */
export interface GuestTree {
  readonly base: readonly TreeEntry[]
  /** The agent's folder without Node, and what was asked for besides. */
  readonly agent: readonly TreeEntry[]
  /** The vminit that was built with the agent. */
  readonly vminit: string
}

/** `false`: no policies; `true`: policies that a call sets; a text: this policy from the start. */
export type PolicyPart = boolean | { readonly text: string }

export interface GuestExtras {
  /** Any but false, the default, takes policy.node, whose first build takes minutes. */
  readonly policy?: PolicyPart
  /** Whether it has a shell for the debug console (docs/debug.md). */
  readonly debugShell?: boolean
}

/** The root of a guest with `kernel`, the same in both forms. */
export async function guestTree(
  kernel: Kernel,
  options: GuestExtras & { readonly progress: (line: string) => void },
): Promise<GuestTree> {
  const { policy = false, debugShell = false, progress } = options
  const built = realpathSync(await buildAgent())
  const base = [
    ...treeOfFolder(await userlandFolder(progress), ''),
    ...(await nodeTree(progress)),
    ...treeOfFolder(kernel.modules, `usr/lib/modules/${kernel.version}`),
  ]
  const agent = [
    ...agentTree(built),
    ...(policy === false ? [] : await policyTree(progress)),
    ...(typeof policy === 'boolean' ? [] : [fileOf(POLICY_FILE, policy.text)]),
    ...(debugShell ? await shellTree(progress) : []),
  ]
  return { base, agent, vminit: join(built, 'vminit') }
}

/** The evaluator of policies in the agent's folder (docs/policy.md). */
export async function policyTree(progress: (line: string) => void): Promise<readonly TreeEntry[]> {
  return [fileFrom(`${agentFolder}/policy.node`, (await ensurePolicyAddon(progress)).path)]
}

/** A shell for the debug console, with the programs that it has built in. */
async function shellTree(progress: (line: string) => void): Promise<readonly TreeEntry[]> {
  return [fileFrom('usr/bin/busybox', await ensureBusybox(progress), 0o755), link('usr/bin/sh', 'busybox')]
}

/** The pinned Node in the agent's folder, stripped of its symbols. */
export async function nodeTree(progress: (line: string) => void): Promise<readonly TreeEntry[]> {
  return [fileFrom(`${agentFolder}/node`, await strippedNode(progress), 0o755)]
}

async function strippedNode(progress: (line: string) => void): Promise<string> {
  // The manifest names the exact version, and hashing it is faster than hashing 120 MB at each start.
  const folder = await cached('stripped-node', { files: [nodeManifest] }, async (target) => {
    progress('stripping Node')
    copyFileSync(pinnedNode(), join(target, 'node'))
    await tool('strip', ['--strip-all', join(target, 'node')], { debianPackage: 'binutils' })
  })
  return join(folder, 'node')
}

/** The files of the built folder `agent`, without its link to Node, and /sbin/init as a link to vminit. */
export function agentTree(agent: string): readonly TreeEntry[] {
  const files = treeOfFolder(agent, agentFolder).filter((entry) => entry.kind === 'file')
  return [...files, link('usr/sbin/init', '../lib/microvm-agent/vminit')]
}

/** The content of {@link fileList} for the image with the default kernel as it is built now. */
export async function currentFileList(progress: (line: string) => void): Promise<string> {
  const kernel = await ensureKernel(DEFAULT_KERNEL, progress)
  const { base, agent } = await guestTree(kernel, { progress })
  return describeTree([...base, ...agent], kernel)
}

/** One line per entry: its mode, its path with KERNEL for the kernel's version, and a link's target. */
function describeTree(tree: readonly TreeEntry[], kernel: Kernel): string {
  const lines = completeTree(tree).map((entry) => {
    const mode = entry.mode.toString(8).padStart(4, '0')
    const target = entry.kind === 'link' ? ` -> ${entry.target}` : ''
    return `${mode} ${entry.path.replace(kernel.version, 'KERNEL')}${entry.kind === 'directory' ? '/' : ''}${target}\n`
  })
  return lines.join('')
}
