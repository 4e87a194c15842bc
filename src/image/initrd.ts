import { basename, join } from 'node:path'
import { directory, fileFrom, fileOf, link, type TreeEntry } from './formats/tree.ts'
import type { Kernel } from './kernel/kernel.ts'
import { loadOrder, readModuleIndex } from './kernel/module-list.ts'

/**
 * The modules that vminit loads: first those that mounting a disk root may need (ext4 is built into Debian's cloud
 * kernels), then those for which the agent would otherwise run modprobe before it listens or during its boot.
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
export function allInOneExtras(kernel: Kernel): readonly TreeEntry[] {
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

/** The order in which vminit loads the modules of its folder. */
function orderFile(order: readonly string[]): TreeEntry {
  return fileOf('modules/order', order.map((file) => `${basename(file)}\n`).join(''))
}
