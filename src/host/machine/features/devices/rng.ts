import { integer, object, optional } from '../../document/shape.ts'
import { hostsOwn } from '../../document/words.ts'
import { hasPci } from '../../machine.ts'
import { present, withParts } from '../draft.ts'
import { feature } from '../feature.ts'
import { isOn, switchable } from '../switchable.ts'

export const rng = feature({
  name: 'rng',
  summary: 'random numbers of the host; with `rate` for a limit',
  shape: switchable({
    rate: optional(
      object({ bytes: integer(1, 1 << 30, 'bytes'), periodMs: optional(integer(1, 3_600_000, 'ms')) }),
    ),
    path: hostsOwn,
  }),
  expand: (draft, wish, { at }) => {
    if (!isOn(wish, draft.defaults.present.rng)) return draft
    const properties = present({
      'max-bytes': wish?.rate?.bytes,
      period: wish?.rate && (wish.rate.periodMs ?? draft.defaults.rngPeriodMs),
    })
    const device = {
      kind: 'rng',
      model: 'virtio-rng',
      properties,
      from: at,
      ...(hasPci(draft) && { pci: 'cold' as const }),
    }
    const backend = { kind: 'random', ...(wish?.path !== undefined && { path: wish.path }) }
    return withParts(draft, [{ key: 'rng0', device, backend }])
  },
})
