import { refuse } from '../../../spec/component-path.ts'
import { boolean, list, object, oneOf, optional, text } from '../../document/shape.ts'
import { catalogueName, pciAddress } from '../../document/words.ts'
import { hasPci } from '../../machine.ts'
import { pciAddressOf, withParts } from '../draft.ts'
import { feature } from '../feature.ts'

const item = object({
  name: optional(catalogueName),
  source: catalogueName,
  tag: text(/^[\w-]{1,31}$/, '1 to 31 letters, digits, _ or -'),
  type: optional(oneOf(['virtio-fs', '9p'])),
  readonly: optional(boolean),
  address: optional(pciAddress),
})

export const share = feature({
  name: 'share',
  summary: 'folders of the catalogue that the guest mounts by their tags',
  shape: list(item, 64),
  expand: (draft, wishes = [], { at }) => {
    const tags = new Map<string, string>()
    const parts = wishes.map(
      ({ address: wished, name, readonly = false, source, tag, type = draft.defaults.share }, index) => {
        const from = `${at}[${index}]`
        const other = tags.get(tag)
        if (other !== undefined) refuse(`${from}.tag`, `${tag}: already that of ${other}`)
        tags.set(tag, from)
        const [address, isNinth] = [pciAddressOf(wished), type === '9p']
        const device = {
          ...{ kind: 'share', model: isNinth ? 'virtio-9p' : 'vhost-user-fs', from },
          properties: isNinth ? { mount_tag: tag } : { tag },
          ...(address && { address }),
          ...(hasPci(draft) && { pci: 'cold' as const }),
        }
        const backend = { kind: 'folder', name: source, options: { readOnly: readonly } }
        return { key: name ?? `share${index}`, device, backend }
      },
    )
    return withParts(draft, parts)
  },
})
