import { integer, optional } from '../../document/shape.ts'
import { pciAddress } from '../../document/words.ts'
import { hasPci } from '../../machine.ts'
import { pciAddressOf, withParts } from '../draft.ts'
import { feature } from '../feature.ts'
import { isOn, switchable } from '../switchable.ts'

const FIRST_CID = 3
const LAST_CID = 0xffff_fffe

export const vsock = feature({
  name: 'vsock',
  summary: 'sockets between guest and host; the daemon chooses the context id unless it is given',
  shape: switchable({ cid: optional(integer(FIRST_CID, LAST_CID)), address: optional(pciAddress) }),
  expand: (draft, wish, { at }) => {
    if (!isOn(wish, draft.defaults.present.vsock)) return draft
    const address = pciAddressOf(wish?.address)
    const device = {
      ...{ kind: 'vsock', model: 'virtio-vsock', properties: { 'guest-cid': wish?.cid ?? 0 }, from: at },
      ...(address && { address }),
      // A suspend and a move take it from the guest for a while.
      ...(hasPci(draft) && { pci: 'hot' as const }),
    }
    return withParts(draft, [{ key: 'vsock0', device, backend: { kind: 'vsock' } }])
  },
})
