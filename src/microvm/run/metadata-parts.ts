import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { VMMetadata } from '../../gen/vm.ts'
import { checkLinks } from '../../handlers/network/vm-metadata/point-to-point.ts'
import { METADATA_ITEM } from '../../handlers/network/vm-metadata/read-vm-metadata.ts'
import type { GuestParts } from '../guest-spec.ts'
import { specKey } from '../spec-key.ts'
import { userNetworkFor } from './user-network.ts'

/** Locally administered, and not that of a guest that is reached through TCP. */
const MAC = '52:54:00:00:00:03'
const SLOT = 6

/**
 * What a guest is given so that it learns `metadata`: the item in its firmware, whose content is written into `folder`,
 * and a network card whose other end answers as the peer. Throws UsageError when QEMU's user network cannot.
 */
export function metadataParts(
  metadata: VMMetadata,
  folder: string,
): Required<Pick<GuestParts, 'append' | 'extra'>> {
  const path = join(folder, 'metadata.pb')
  writeFileSync(path, VMMetadata.encode(metadata).finish())
  const { links } = checkLinks(metadata.networkConfig)
  const item = {
    devices: { [ITEM]: { kind: 'fw-cfg', name: METADATA_ITEM, backend: ITEM_CONTENT } },
    backends: { [ITEM_CONTENT]: { kind: 'content', path } },
  } as const
  if (links.length === 0) return { append: [], extra: item }
  return {
    // The guest may have another card, by which it is reached.
    append: [`agent.metadata_interface=${MAC}`],
    extra: {
      devices: { ...item.devices, [CARD]: { kind: 'nic', slot: SLOT, mac: MAC, backend: NETWORK } },
      backends: { ...item.backends, [NETWORK]: userNetworkFor(links) },
    },
  }
}

const ITEM = specKey('metadata')
const ITEM_CONTENT = specKey('metadata-content')
const CARD = specKey('metadata-card')
const NETWORK = specKey('metadata-network')
