import { refuse } from '../../../spec/component-path.ts'
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
    const { currentMib, sizeMib } = draft.memory
    if (!isOn(wish, draft.defaults.present.balloon && hasPci(draft))) {
      if (currentMib === sizeMib) return draft
      return refuse(at, `none, but memory.current is ${currentMib} of ${sizeMib} MiB, want one`)
    }
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
