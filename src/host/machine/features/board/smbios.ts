import { object, optional } from '../../document/shape.ts'
import { label, uuid } from '../../document/words.ts'
import { present } from '../draft.ts'
import { feature } from '../feature.ts'

export const smbios = feature({
  name: 'smbios',
  summary: "what the board says of itself; `uuid` is also the machine's",
  shape: object({
    ...{ manufacturer: optional(label), product: optional(label), version: optional(label) },
    ...{ serial: optional(label), sku: optional(label), family: optional(label), uuid: optional(uuid) },
  }),
  expand: (draft, wish) => {
    if (wish === undefined) return draft
    const { uuid: own = draft.uuid, ...words } = wish
    return { ...draft, uuid: own.toLowerCase(), smbios: present(words) }
  },
})
