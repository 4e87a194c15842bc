import { refuse } from '../../../spec/component-path.ts'
import { either, object, oneOf } from '../../document/shape.ts'
import { ensureController } from '../controllers-of.ts'
import { withParts } from '../draft.ts'
import { feature } from '../feature.ts'

const type = oneOf(['serial', 'virtio', 'none'])

/** Runs after `graphics`. */
export const console = feature({
  name: 'console',
  summary: 'serial (default without a screen), virtio, or none',
  shape: either(type, object({ type }), (short) => ({ type: short })),
  expand: (draft, wish, { at }) => {
    const hasScreen = Object.values(draft.devices).some(({ kind }) => kind === 'display')
    const { type: kind = hasScreen ? 'none' : draft.defaults.console } = wish ?? {}
    const backend = { kind: 'console' }
    switch (kind) {
      case 'none':
        return draft
      case 'serial': {
        const device = { kind: 'console', model: 'isa-serial', properties: { index: 0 }, from: at }
        return withParts(draft, [{ key: 'console0', device, backend }])
      }
      case 'virtio': {
        const [prepared, controller] = ensureController(draft, 'virtio-serial', at)
        const address = { type: 'port', controller, port: 0 } as const
        const device = { kind: 'console', model: 'virtconsole', address, properties: {}, from: at }
        return withParts(prepared, [{ key: 'console0', device, backend }])
      }
      default:
        return refuse(at, kind satisfies never)
    }
  },
})
