import { messageOf } from '../../../base/errors.ts'
import type { Logger } from '../../../base/log.ts'
import { METADATA_ITEM } from '../../../base/vm-metadata/point-to-point.ts'
import { VMMetadata } from '../../../gen/vm.ts'
import { type FirmwareState, type FirmwareTree, firmwareState, readFirmwareItem } from './firmware-item.ts'

/** The items that may hold the metadata, the preferred one first. */
const ITEMS: readonly string[] = [
  METADATA_ITEM,
  // The name in the protocol. QEMU reserves names without `opt/` for itself.
  'vm.metropolis.monogon.dev/v1/metadata.pb',
]

export interface FoundMetadata {
  readonly item: string
  readonly metadata: VMMetadata
}

/** Undefined without metadata; the log says what is missing. An unreadable item counts as absent, with a warning. */
export async function readVmMetadata(tree: FirmwareTree, log: Logger): Promise<FoundMetadata | undefined> {
  const items = await Promise.all(ITEMS.map((item) => readItem(tree, item, log)))
  const [first, second] = items.filter((item) => item !== undefined)
  if (first === undefined) {
    const state = await firmwareState(tree)
    log.info('no VM metadata', { reason: REASONS[state] })
    return undefined
  }
  if (second !== undefined && Buffer.compare(first.bytes, second.bytes) !== 0) {
    log.warn('VM metadata given twice with different content', { used: first.item, ignored: second.item })
  }
  return first
}

async function readItem(
  tree: FirmwareTree,
  item: string,
  log: Logger,
): Promise<(FoundMetadata & { readonly bytes: Uint8Array }) | undefined> {
  try {
    const bytes = await readFirmwareItem(tree, item)
    return bytes && { item, bytes, metadata: VMMetadata.decode(bytes) }
  } catch (error) {
    log.warn('VM metadata ignored', { item, error: messageOf(error) })
    return undefined
  }
}

const REASONS: Readonly<Record<FirmwareState, string>> = {
  'no driver': 'this kernel has no qemu_fw_cfg driver (FW_CFG_SYSFS)',
  'no device': 'this machine has no fw_cfg device, or its driver did not find it',
  ready: 'the host gave none',
}
