import { AgentError, errnoOf } from '../../base/errors.ts'
import { waitForPciBlockDevice } from '../../hotplug/block-device.ts'
import { parsePciPath } from '../../hotplug/pci/pci-path.ts'
import type { Hotplug } from '../../hotplug/wait-for-device.ts'
import type { Volumes } from '../../os/devices/volumes/volumes.ts'
import type { FileStatus } from '../../os/files/file-status.ts'
import type { Files } from '../../os/files/files.ts'

export interface SwapContext extends Hotplug {
  readonly volumes: Volumes
}

const HIGHEST_SLOT = 0x1f

/** AddSwap: swaps to the disk at a PCI path of slots, once it is there. Throws INVALID_ARGUMENT for a wrong path. */
export async function addSwap(
  dependencies: SwapContext,
  slots: readonly number[],
  signal: AbortSignal,
): Promise<void> {
  if (slots.length === 0) throw new AgentError('INVALID_ARGUMENT', 'PCIPath is empty')
  const wrong = slots.find((slot) => slot > HIGHEST_SLOT)
  if (wrong !== undefined) {
    throw new AgentError('INVALID_ARGUMENT', `PCIPath: slot ${wrong}, want at most ${HIGHEST_SLOT}`)
  }
  const path = parsePciPath(slots.map((slot) => slot.toString(16).padStart(2, '0')).join('/'))
  await swapOn(dependencies, await waitForPciBlockDevice(dependencies, path, signal))
}

/** AddSwapPath: uses a block device or a file as swap space. Throws INVALID_ARGUMENT for a relative path. */
export async function addSwapPath(dependencies: SwapContext, path: string): Promise<void> {
  if (!path.startsWith('/')) throw new AgentError('INVALID_ARGUMENT', `path "${path}": not an absolute path`)
  if (path.includes('\0')) {
    throw new AgentError('INVALID_ARGUMENT', `path ${JSON.stringify(path)}: contains a NUL byte`)
  }
  await swapOn(dependencies, path)
}

/**
 * Needs no undo, because the kernel enables swap completely or not at all. Swap that is already enabled counts as success,
 * because an earlier call may have succeeded without its response arriving.
 */
async function swapOn({ files, volumes }: SwapContext, path: string): Promise<void> {
  try {
    await volumes.addSwap(path)
  } catch (error) {
    if (errnoOf(error) === 'EINVAL') {
      throw new AgentError('INTERNAL', `swap ${path}: no swap signature, want one made by mkswap`, {
        cause: error,
      })
    }
    if (errnoOf(error) !== 'EBUSY' || !(await isSwap(files, volumes, path))) throw error
  }
}

/** Whether a device or file is enabled as swap space, even under another name. */
async function isSwap(files: Files, volumes: Volumes, path: string): Promise<boolean> {
  const status = await files.stat(path)
  for (const name of await volumes.swaps()) {
    if (isSame(status, await files.stat(name))) return true
  }
  return false
}

function isSame(one: FileStatus | undefined, other: FileStatus | undefined): boolean {
  if (one === undefined || other === undefined || one.kind !== other.kind) return false
  if (one.kind === 'block') return one.major === other.major && one.minor === other.minor
  return one.device === other.device && one.inode === other.inode
}
