import { boolean, optional } from '../../document/shape.ts'
import { pciAddress } from '../../document/words.ts'
import { hasPci } from '../../machine.ts'
import { pciAddressOf, present, withParts } from '../draft.ts'
import { feature } from '../feature.ts'
import { isOn, switchable } from '../switchable.ts'

export const balloon = feature({
  name: 'balloon',
  summary: 'a device by which the host takes memory back; on machines with PCI by default',
  shape: switchable({ deflateOnOom: optional(boolean), address: optional(pciAddress) }),
  expand: (draft, wish, { at }) => {
    if (!isOn(wish, hasPci(draft))) return draft
    const address = pciAddressOf(wish?.address)
    const device = {
      ...{ kind: 'balloon', model: 'virtio-balloon', from: at },
      properties: present({ 'deflate-on-oom': wish?.deflateOnOom }),
      ...(address && { address }),
      ...(hasPci(draft) && { pci: 'cold' as const }),
    }
    return withParts(draft, [{ key: 'balloon0', device }])
  },
})
