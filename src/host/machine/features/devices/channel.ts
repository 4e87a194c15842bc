import { refuse, shown } from '../../../spec/component-path.ts'
import { list, object, text } from '../../document/shape.ts'
import { hostsOwn } from '../../document/words.ts'
import { SPICE_CHANNEL, withChannel } from '../agent-channel.ts'
import { feature } from '../feature.ts'

const item = object({
  name: text(/^[\w.-]{1,64}$/, 'a name such as org.qemu.guest_agent.0'),
  path: hostsOwn,
})

export const channel = feature({
  name: 'channel',
  summary: 'named virtio-serial ports, each a socket of the host',
  shape: list(item, 30),
  expand: (draft, wishes = [], { at }) => {
    const names = new Set<string>()
    return wishes.reduce((before, { name, path }, index) => {
      const from = `${at}[${index}]`
      if (names.has(name)) refuse(`${from}.name`, `${shown(name)}: given twice`)
      names.add(name)
      const isSpice = name === SPICE_CHANNEL
      const hasSpice = Object.values(before.devices).some(
        ({ kind, model }) => kind === 'display' && model === 'spice',
      )
      if (isSpice && !hasSpice) refuse(`${from}.name`, `${name}: wants graphics of type spice`)
      const backend = { kind: isSpice ? 'spice-agent' : 'socket', ...(path !== undefined && { path }) }
      return withChannel(before, { name, from, backend })
    }, draft)
  },
})
