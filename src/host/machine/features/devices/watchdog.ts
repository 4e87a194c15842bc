import { refuse } from '../../../spec/component-path.ts'
import { oneOf, optional } from '../../document/shape.ts'
import { pciAddress } from '../../document/words.ts'
import { hasPci } from '../../machine.ts'
import { pciAddressOf, withParts } from '../draft.ts'
import { feature } from '../feature.ts'
import { isOn, switchable } from '../switchable.ts'

export const watchdog = feature({
  name: 'watchdog',
  summary: 'a timer that acts on the machine when the guest no longer winds it up',
  shape: switchable({
    model: optional(oneOf(['i6300esb', 'ib700'])),
    action: optional(oneOf(['reset', 'shutdown', 'poweroff', 'pause', 'none'])),
    address: optional(pciAddress),
  }),
  expand: (draft, wish, { at }) => {
    if (!isOn(wish, draft.defaults.present.watchdog && hasPci(draft))) return draft
    if (!hasPci(draft)) refuse(at, 'machine microvm has no watchdog')
    const { action = draft.defaults.watchdog.action, model = draft.defaults.watchdog.model } = wish ?? {}
    const isPci = model === 'i6300esb'
    const address = pciAddressOf(wish?.address)
    if (!isPci && address !== undefined) refuse(`${at}.address`, 'ib700 is no device of PCI')
    const device = {
      ...{ kind: 'watchdog', model, properties: { action }, from: at },
      ...(address && { address }),
      ...(isPci && { pci: 'cold' as const }),
    }
    return withParts(draft, [{ key: 'watchdog0', device }])
  },
})
