import { copyFileSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import { type Budgeted, checkBudget } from './budget.ts'
import { cachedImage } from './cached-image.ts'
import { appendInitrd, writeCompressedCpio } from './compressed-cpio.ts'
import { writeCpio } from './cpio.ts'
import { writeErofs } from './file-systems.ts'
import { guestTree } from './guest-tree.ts'
import { allInOneExtras, stageOneTree } from './initrd.ts'
import { ensureKernel } from './kernel.ts'
import type { KernelName } from './packages.ts'
import type { TreeEntry } from './tree.ts'

export { ensureContainerRoot } from './container-root.ts'

/** How a guest finds its root: a read-only disk behind a small initrd, or an initrd that is the root. */
export type ImageForm = 'disk' | 'initrd'

/** What a microVM boots from. All paths are of finished files that are never changed again. */
export interface GuestImage {
  /** As `uname -r` prints it. */
  readonly kernelVersion: string
  /** The bzImage. */
  readonly kernel: string
  readonly initrd: string
  /** The disk to attach as /dev/vda and to name in `root=` and `rootfstype=`; absent in the initrd form. */
  readonly root: { readonly path: string; readonly type: 'erofs' | 'ext4' } | undefined
}

type Progress = (line: string) => void

/** Which image is wanted; `progress` gets a line for every step that takes time. */
export interface ImageOptions {
  readonly form?: ImageForm
  readonly kernel?: KernelName
  readonly progress: Progress
}

/** Builds the guest image, or finds it built. Needs the network only when the lock changed. */
export async function ensureImage(options: ImageOptions): Promise<GuestImage> {
  const { form = 'disk', kernel: name = 'bookworm', progress } = options
  const kernel = await ensureKernel(name, progress)
  const { base, agent, agentFolder } = await guestTree(kernel, progress)
  const image = { kernelVersion: kernel.version, kernel: kernel.image }
  if (form === 'initrd')
    return {
      ...image,
      initrd: await allInOne([...base, ...allInOneExtras(kernel)], agent, progress),
      root: undefined,
    }
  const root = await rootDisk([...base, ...agent], progress)
  return {
    ...image,
    initrd: await stageOne(
      stageOneTree(kernel, join(agentFolder, 'vminit')),
      name === 'bookworm-generic' ? 'generic stage-one initrd' : 'stage-one initrd',
    ),
    root: { path: root, type: 'erofs' },
  }
}

function rootDisk(tree: readonly TreeEntry[], progress: Progress): Promise<string> {
  return cachedImage('root.erofs', tree, async (path) => {
    progress('making the root disk')
    await writeErofs(path, tree)
    checkBudget('root disk', path)
  })
}

function stageOne(tree: readonly TreeEntry[], budget: Budgeted): Promise<string> {
  return cachedImage('stage-one.cpio', tree, async (path) => {
    writeCpio(path, tree)
    checkBudget(budget, path)
  })
}

/** The base and the agent are separate archives, one after the other: only the small one follows every change. */
async function allInOne(
  base: readonly TreeEntry[],
  agent: readonly TreeEntry[],
  progress: Progress,
): Promise<string> {
  const baseArchive = await cachedImage('base.cpio.zst', base, async (path) => {
    progress('compressing the base of the all-in-one initrd (once, about a minute)')
    await writeCompressedCpio(path, base)
  })
  return cachedImage('all-in-one.cpio.zst', [...base, ...agent], async (path) => {
    const agentArchive = `${path}.agent`
    await writeCompressedCpio(agentArchive, agent)
    copyFileSync(baseArchive, path)
    appendInitrd(path, agentArchive)
    rmSync(agentArchive)
    checkBudget('all-in-one initrd', path)
  })
}
