import { checkAddress } from '../../../spec/check-device.ts'
import { refuse } from '../../../spec/component-path.ts'
import { MAX_ADDRESSES } from '../../../spec/limits.ts'
import {
  either,
  integer,
  list,
  object,
  oneOf,
  optional,
  type Read,
  type Shape,
} from '../../document/shape.ts'
import { bootOrder, catalogueName, ipAddress, macAddress, pciAddress } from '../../document/words.ts'
import { hasPci, type Scalar } from '../../machine.ts'
import { type Draft, digitsFor, type Part, pciAddressOf, present, withParts } from '../draft.ts'
import { feature } from '../feature.ts'

const MAX_NICS = 256
const MAX_FILTERS = 8

const filter = oneOf(['no-mac-spoofing', 'no-ip-spoofing', 'no-arp-spoofing', 'clean-traffic'])

interface Source {
  readonly kind: 'network' | 'bridge' | 'tap'
  readonly name: string
}

const source: Shape<Source> = object({ kind: oneOf(['network']), name: catalogueName })

const item = object({
  name: optional(catalogueName),
  source: either(catalogueName, source, (name) => ({ kind: 'network', name })),
  model: optional(oneOf(['virtio', 'e1000', 'e1000e', 'rtl8139'])),
  mac: optional(macAddress),
  queues: optional(integer(1, 16)),
  filter: optional(either(filter, list(filter, MAX_FILTERS), (name) => [name])),
  /** From which the guest may send; by default those of `metadata`, for the only card. */
  addresses: optional(list(ipAddress, MAX_ADDRESSES)),
  bootOrder: optional(bootOrder),
  address: optional(pciAddress),
})
type NicWish = Read<typeof item>

export const network = feature({
  name: 'network',
  summary: 'network cards, by the names of networks',
  shape: list(item, MAX_NICS),
  expand: (draft, wishes = [], { at }) =>
    withParts(
      draft,
      wishes.map((wish, index) => partOf(draft, wish, index, `${at}[${index}]`)),
    ),
})

const GROUP_BIT = 1

function partOf(draft: Draft, wish: NicWish, index: number, from: string): Part {
  const { model = hasPci(draft) ? draft.defaults.card : 'virtio', queues = 1, source } = wish
  const key = wish.name ?? `nic${index}`
  const mac = (wish.mac ?? derivedMac(draft, key)).toLowerCase()
  if ((Number.parseInt(mac.slice(0, 2), 16) & GROUP_BIT) === 1)
    refuse(`${from}.mac`, `${mac}: address of a group, want an even first byte`)
  if (mac === '00:00:00:00:00:00') refuse(`${from}.mac`, `${mac}: no address of a card, want another`)
  if (model !== 'virtio' && !hasPci(draft))
    refuse(`${from}.model`, `${model}: machine microvm has no PCI, want virtio`)
  if (model !== 'virtio' && queues > 1) refuse(`${from}.queues`, `${queues}: model ${model} has one`)
  for (const [each, text] of wish.addresses?.entries() ?? []) checkAddress(`${from}.addresses[${each}]`, text)
  if (wish.addresses !== undefined && !usesAddresses(wish.filter))
    refuse(`${from}.addresses`, 'no filter uses them, want no-ip-spoofing or no-arp-spoofing')
  const address = pciAddressOf(wish.address)
  return {
    key,
    device: {
      ...{ kind: 'nic', model: model === 'virtio' ? 'virtio-net' : model, from },
      properties: present<Scalar>({
        mac,
        bootindex: wish.bootOrder,
        queues: queues > 1 ? queues : undefined,
      }),
      ...(address && { address }),
      ...(hasPci(draft) && { pci: 'hot' as const }),
    },
    backend: {
      ...source,
      options: present({ filters: wish.filter?.join(','), addresses: wish.addresses?.join(',') }),
    },
  }
}

/** Whether the filters of a card compare addresses of IP, which they have to be told. */
export function usesAddresses(filters: readonly string[] = []): boolean {
  return filters.some((name) => name !== 'no-mac-spoofing')
}

/** QEMU's own prefix, and three bytes of this machine's identity. */
function derivedMac(draft: Draft, key: string): string {
  return `52:54:00:${digitsFor(draft, key)
    .slice(0, 6)
    .replace(/(..)(?=.)/g, '$1:')}`
}
