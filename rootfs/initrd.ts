import { basename, join } from 'node:path'
import type { Kernel } from './kernel.ts'
import { loadOrder, readModuleIndex } from './module-list.ts'
import { directory, fileFrom, fileOf, link, type TreeEntry } from './tree.ts'

/** What a disk root may need before it can be mounted; ext4 is built into Debian's kernels. */
const STAGE_ONE_MODULES = ['virtio_pci', 'virtio_mmio', 'virtio_blk', 'erofs', 'ext4']

/** The kernel opens it before anything is mounted; without it the first program has no stdio at all. */
const CONSOLE: TreeEntry = { kind: 'character-device', path: 'dev/console', mode: 0o600, major: 5, minor: 1 }

/**
 * The first stage of a boot from disk: the file `vminit` as /init, and the modules it loads in the order of
 * /modules/order.
 */
export function stageOneTree(kernel: Kernel, vminit: string): readonly TreeEntry[] {
  const order = loadOrder(readModuleIndex(kernel.modules), STAGE_ONE_MODULES)
  const names = order.map((file) => basename(file))
  return [
    CONSOLE,
    ...['proc', 'sys', 'newroot'].map((path) => directory(path)),
    fileFrom('init', vminit, 0o755),
    fileOf('modules/order', names.map((name) => `${name}\n`).join('')),
    ...order.map((file) => fileFrom(`modules/${basename(file)}`, join(kernel.modules, file))),
  ]
}

/** What an initrd that is the whole root needs beyond the root's own tree. */
export function allInOneExtras(): readonly TreeEntry[] {
  return [CONSOLE, link('init', 'usr/sbin/init')]
}
