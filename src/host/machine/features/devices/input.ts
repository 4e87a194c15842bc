import { refuse } from '../../../spec/component-path.ts'
import { list, object, oneOf, optional, type Read } from '../../document/shape.ts'
import { hasPci } from '../../machine.ts'
import { ensureController, freePort } from '../controllers-of.ts'
import { type Draft, withParts } from '../draft.ts'
import { feature } from '../feature.ts'

const item = object({
  type: oneOf(['mouse', 'tablet', 'keyboard']),
  bus: optional(oneOf(['ps2', 'usb', 'virtio'])),
})
type InputWish = Read<typeof item>

const USB_MODELS = { mouse: 'usb-mouse', tablet: 'usb-tablet', keyboard: 'usb-kbd' } as const
const VIRTIO_MODELS = { mouse: 'virtio-mouse', tablet: 'virtio-tablet', keyboard: 'virtio-keyboard' } as const

/** Runs after `graphics`: a machine with a screen has at least a mouse, and a USB controller for what is plugged in. */
export const input = feature({
  name: 'input',
  summary: 'mice, tablets and keyboards; with a screen a PS/2 mouse (spice) or a tablet (vnc) by default',
  shape: list(item, 16),
  expand: (draft, wishes, { at }) => {
    const screen = Object.values(draft.devices).find(({ kind }) => kind === 'display')
    if (screen === undefined && wishes === undefined) return draft
    const usb = screen === undefined ? draft : ensureController(draft, 'usb', screen.from)[0]
    const byDefault: readonly InputWish[] = [
      { type: draft.defaults.input[screen?.model === 'vnc' ? 'vnc' : 'spice'] },
    ]
    return (wishes ?? byDefault).reduce(
      (before, wish, index) => withInput(before, wish, `${at}[${index}]`),
      usb,
    )
  },
})

function withInput(draft: Draft, wish: InputWish, from: string): Draft {
  const { type, bus = type === 'tablet' ? 'usb' : 'ps2' } = wish
  const base = { kind: 'input', properties: {}, from }
  const number = Object.values(draft.devices).filter(({ kind }) => kind === 'input').length
  const key = `input${number}`
  switch (bus) {
    case 'ps2': {
      if (type === 'tablet') refuse(`${from}.bus`, 'ps2 has no tablets, want usb or virtio')
      if (!hasPci(draft)) refuse(`${from}.bus`, 'machine microvm has no ps2, want virtio')
      return withParts(draft, [{ key, device: { ...base, model: `ps2-${type}`, builtIn: true } }])
    }
    case 'usb': {
      const [prepared, controller] = ensureController(draft, 'usb', from)
      const address = { type: 'port', controller, port: freePort(prepared, controller, 1) } as const
      if (address.port > usbPorts(prepared, controller)) refuse(from, `no free port at ${controller}`)
      return withParts(prepared, [{ key, device: { ...base, model: USB_MODELS[type], address } }])
    }
    case 'virtio':
      return withParts(draft, [
        {
          key,
          device: { ...base, model: VIRTIO_MODELS[type], ...(hasPci(draft) && { pci: 'cold' as const }) },
        },
      ])
    default:
      return bus satisfies never
  }
}

function usbPorts({ devices }: Draft, controller: string): number {
  return devices[controller]?.model === 'piix3-usb-uhci' ? 2 : 4
}
