import { refuse } from '../../spec/component-path.ts'
import { ensureController, freePort } from './controllers-of.ts'
import { type Draft, withParts } from './draft.ts'

const GUEST_AGENT = 'org.qemu.guest_agent.0'
export const SPICE_CHANNEL = 'com.redhat.spice.0'

/** The draft with the port by which QEMU's guest agent is reached. */
export function withAgentChannel(draft: Draft, from: string): Draft {
  return withChannel(draft, { name: GUEST_AGENT, from, backend: { kind: 'socket' } })
}

export interface ChannelWish {
  readonly name: string
  readonly from: string
  readonly backend: { readonly kind: string; readonly path?: string }
}

/** The draft with a named virtio-serial port. One that is there already by this name gets the backend's path. */
export function withChannel(draft: Draft, { backend, from, name }: ChannelWish): Draft {
  const present = Object.values(draft.devices).find(
    ({ kind, properties }) => kind === 'channel' && properties.name === name,
  )
  if (present?.backend !== undefined) {
    const old = draft.backends[present.backend]
    return {
      ...draft,
      backends: { ...draft.backends, [present.backend]: { options: {}, ...old, ...backend } },
    }
  }
  const [prepared, controller] = ensureController(draft, 'virtio-serial', from)
  // Port 0 is for a console.
  const port = freePort(prepared, controller, 1)
  const ports = Number(prepared.devices[controller]?.properties.max_ports)
  if (port >= ports)
    refuse(from, `${controller} has ${ports} ports, the first for a console, want a controller with more`)
  const address = { type: 'port', controller, port } as const
  const device = { kind: 'channel', model: 'virtserialport', address, properties: { name }, from }
  return withParts(prepared, [{ key: `channel${port - 1}`, device, backend }])
}
