import { refuse } from '../../../spec/component-path.ts'
import { integer, oneOf, optional, text } from '../../document/shape.ts'
import { catalogueName, pciAddress } from '../../document/words.ts'
import { hasPci, type Scalar } from '../../machine.ts'
import { SPICE_CHANNEL, withChannel } from '../agent-channel.ts'
import { pciAddressOf, present, withParts } from '../draft.ts'
import { feature } from '../feature.ts'
import { isOn, switchable } from '../switchable.ts'

const kib = integer(1024, 1 << 20, 'KiB')

const MODELS = { qxl: 'qxl-vga', vga: 'VGA', virtio: 'virtio-vga' } as const

export const graphics = feature({
  name: 'graphics',
  summary: 'a screen by spice (default, with its channel and qxl) or vnc, on a socket that the host chooses',
  shape: switchable({
    type: optional(oneOf(['spice', 'vnc'])),
    video: optional(oneOf(['qxl', 'vga', 'virtio'])),
    heads: optional(integer(1, 16)),
    ram: optional(kib),
    vram: optional(kib),
    vgamem: optional(kib),
    /** The name of a secret. */
    password: optional(catalogueName),
    passwordValidTo: optional(text(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d$/, 'a time such as 2030-01-01T00:00:00')),
    /** The network at whose address the screen is offered. */
    listen: optional(catalogueName),
    address: optional(pciAddress),
  }),
  expand: (draft, wish, { at }) => {
    if (!isOn(wish)) return draft
    if (!hasPci(draft)) refuse(at, 'machine microvm has no screen')
    const { qxl, screen: usual, video: usualVideo } = draft.defaults
    const type: keyof typeof usualVideo = wish?.type ?? usual
    const { video = usualVideo[type] } = wish ?? {}
    const isQxl = video === 'qxl'
    const qxlOnly = Object.entries({ ram: wish?.ram, vram: wish?.vram }).find(
      ([, value]) => value !== undefined,
    )
    if (!isQxl && qxlOnly !== undefined) refuse(`${at}.${qxlOnly[0]}`, `video ${video} has none`)
    if (video === 'virtio' && wish?.vgamem !== undefined) refuse(`${at}.vgamem`, 'video virtio has none')
    if (video === 'vga' && (wish?.heads ?? 1) > 1) refuse(`${at}.heads`, `${wish?.heads}: video vga has 1`)
    if (wish?.passwordValidTo !== undefined && wish.password === undefined)
      refuse(`${at}.passwordValidTo`, 'wants a password')
    if (wish?.passwordValidTo !== undefined && Number.isNaN(Date.parse(`${wish.passwordValidTo}Z`)))
      refuse(`${at}.passwordValidTo`, `${wish.passwordValidTo}: no such time`)
    const vgamem = wish?.vgamem ?? qxl.vgamem
    const properties = present<Scalar>({
      ...{ max_outputs: isQxl || video === 'virtio' ? (wish?.heads ?? 1) : undefined },
      ...{ ram_size: isQxl ? (wish?.ram ?? qxl.ram) * 1024 : undefined },
      ...{ vram_size: isQxl ? (wish?.vram ?? qxl.vram) * 1024 : undefined },
      ...{ vgamem_mb: video === 'virtio' ? undefined : Math.ceil(vgamem / 1024) },
    })
    const address = pciAddressOf(wish?.address)
    const options = present({
      ...{ password: wish?.password, passwordValidTo: wish?.passwordValidTo, listen: wish?.listen },
    })
    const screen = withParts(draft, [
      {
        key: 'video0',
        device: {
          kind: 'video',
          model: MODELS[video],
          properties,
          from: at,
          pci: 'cold',
          ...(address && { address }),
        },
      },
      {
        key: 'display0',
        device: { kind: 'display', model: type, properties: {}, from: at },
        backend: { kind: type, options },
      },
    ])
    return type === 'spice'
      ? withChannel(screen, { name: SPICE_CHANNEL, from: at, backend: { kind: 'spice-agent' } })
      : screen
  },
})
