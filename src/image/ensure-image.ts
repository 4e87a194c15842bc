import { appendFileSync, copyFileSync, readFileSync, rmSync, statSync } from 'node:fs'
import { basename, join } from 'node:path'
import { cachedImage } from './cached-image.ts'
import { writeCompressedCpio, writeCpio } from './formats/cpio.ts'
import { writeErofs } from './formats/file-systems.ts'
import { ensurePartitionedImage } from './formats/partitioned-image.ts'
import { directory, fileFrom, fileOf, link, type TreeEntry } from './formats/tree.ts'
import { type GuestExtras, guestTree } from './guest-tree.ts'
import { ensureKernel, type Kernel } from './kernel/kernel.ts'
import { loadOrder, readModuleIndex } from './kernel/module-list.ts'
import { DEFAULT_KERNEL, type KernelName } from './packages.ts'

/**
 * Where a guest's root is: on a read-only disk that a small initrd mounts, in the first partition of such a disk
 * (src/image/formats/partitioned-image.ts), or in the initrd itself.
 */
export type ImageForm = 'disk' | 'partitioned' | 'initrd'

/** The files that a microVM boots from. They are complete and never change. */
export interface GuestImage {
  readonly kernelVersion: string
  readonly kernel: string
  readonly vmlinux?: string | undefined
  readonly initrd: string
  /** The disk to attach and to name in `root=` and `rootfstype=`; absent in the initrd form. */
  readonly root:
    | { readonly path: string; readonly type: 'erofs'; readonly partition: number | undefined }
    | undefined
}

type Progress = (line: string) => void

/** The largest size of each image, in bytes: a larger one fails the build until its budget is raised here. */
const BUDGETS = {
  'stage-one initrd': 3 * 2 ** 20,
  // Larger, because this kernel has ext4 and the drivers of IDE and SATA as modules.
  'generic stage-one initrd': 5.25 * 2 ** 20,
  'all-in-one initrd': 60 * 2 ** 20,
  'root disk': 176 * 2 ** 20,
} as const

type Budgeted = keyof typeof BUDGETS

/** Which image is wanted; `progress` gets a line for each slow step. */
export interface ImageOptions extends GuestExtras {
  readonly form?: ImageForm
  readonly kernel?: KernelName
  readonly progress: Progress
}

/** Builds the guest image unless it is in the build cache. Needs the network only after a change of the lock file. */
export async function ensureImage(options: ImageOptions): Promise<GuestImage> {
  const { form = 'disk', kernel: name = DEFAULT_KERNEL, progress } = options
  const kernel = await ensureKernel(name, progress)
  const { base, agent, vminit } = await guestTree(kernel, options)
  const image = { kernelVersion: kernel.version, kernel: kernel.image, vmlinux: kernel.vmlinux }
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
      stageOneTree(kernel, vminit),
      name === 'bookworm-generic' ? 'generic stage-one initrd' : 'stage-one initrd',
    ),
    root:
      form === 'disk'
        ? { path: root, type: 'erofs', partition: undefined }
        : { path: await ensurePartitionedImage(root, progress), type: 'erofs', partition: 1 },
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

/** Joins two archives, so that a change of the agent compresses only the small one again. */
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
    appendFileSync(path, readFileSync(agentArchive))
    rmSync(agentArchive)
    checkBudget('all-in-one initrd', path)
  })
}

function checkBudget(kind: Budgeted, path: string): void {
  const { size } = statSync(path)
  const budget = BUDGETS[kind]
  if (size > budget)
    throw new Error(`${kind}: ${size} bytes, want at most ${budget} (BUDGETS in src/image/ensure-image.ts)`)
}

/**
 * The modules that vminit loads. The first ones may be needed to mount a disk root; ext4 is built into Debian's cloud
 * kernels. For the others the agent would run modprobe before it listens or during its boot.
 */
const EARLY_MODULES = [
  // erofs needs a crc32c when it is loaded, which modules.dep does not list.
  ...['virtio_pci', 'virtio_mmio', 'virtio_console', 'virtio_blk', 'nfit', 'virtio_pmem', 'nd_pmem'],
  ...['crc32c_generic', 'erofs', 'ext4'],
  ...['vmw_vsock_virtio_transport', 'virtio_net', 'qemu_fw_cfg'],
]

/** The kernel opens it before anything is mounted; without it the first program has no stdio. */
const CONSOLE: TreeEntry = { kind: 'character-device', path: 'dev/console', mode: 0o600, major: 5, minor: 1 }

/** The first stage of a boot from disk: the file `vminit` as /init, and the modules that it loads. */
export function stageOneTree(kernel: Kernel, vminit: string): readonly TreeEntry[] {
  const order = earlyModules(kernel)
  return [
    CONSOLE,
    ...['proc', 'sys', 'newroot'].map((path) => directory(path)),
    fileFrom('init', vminit, 0o755),
    orderFile(order),
    ...order.map((file) => fileFrom(`modules/${basename(file)}`, join(kernel.modules, file))),
  ]
}

/** The entries of an initrd that is the whole root, in addition to the root's own. */
function allInOneExtras(kernel: Kernel): readonly TreeEntry[] {
  const order = earlyModules(kernel)
  return [
    CONSOLE,
    link('init', 'usr/sbin/init'),
    orderFile(order),
    ...order.map((file) => link(`modules/${basename(file)}`, `../usr/lib/modules/${kernel.version}/${file}`)),
  ]
}

function earlyModules(kernel: Kernel): readonly string[] {
  return loadOrder(readModuleIndex(kernel.modules), EARLY_MODULES)
}

function orderFile(order: readonly string[]): TreeEntry {
  return fileOf('modules/order', order.map((file) => `${basename(file)}\n`).join(''))
}
