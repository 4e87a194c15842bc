import { refuse } from '../../../spec/component-path.ts'
import { hasPci } from '../../machine.ts'
import { withParts } from '../draft.ts'
import { feature } from '../feature.ts'
import { isOn, switchable } from '../switchable.ts'

export const generationId = feature({
  name: 'generationId',
  summary: 'vmgenid: each resume and each clone gives the guest another generation id',
  shape: switchable({}),
  expand: (draft, wish, { at }) => {
    if (!isOn(wish)) return draft
    if (!hasPci(draft)) refuse(at, 'machine microvm has no vmgenid')
    if (!draft.board.acpi) refuse(at, 'the guest finds vmgenid by ACPI, want system.acpi true')
    // Its id is of a run, and not of the machine.
    const device = { kind: 'generation-id', model: 'vmgenid', properties: {}, from: at }
    return withParts(draft, [{ key: 'generation0', device }])
  },
})
