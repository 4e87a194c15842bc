import { ADDRESS_BITS, familyOf, parseIp } from '../../../../base/ip-address.ts'
import { refuse, shown } from '../../../spec/component-path.ts'
import { object, optional, text } from '../../document/shape.ts'
import { type Draft, present, withParts } from '../draft.ts'
import { feature } from '../feature.ts'
import { usesAddresses } from './network.ts'

const words = text(/^[\w.:/-]{1,64}$/, 'an address such as 10.0.0.2/24')
const link = object({ ip: words, peer: optional(words) })

/** What the guest's agent reads (proto/vm.proto). */
const ITEM = 'opt/vm.metropolis.monogon.dev/v1/metadata.pb'

export const metadata = feature({
  name: 'metadata',
  summary: "the guest's name and addresses, as an item of the firmware",
  shape: object({
    name: optional(text(/^[A-Za-z0-9][A-Za-z0-9.-]{0,63}$/, 'a host name')),
    v4: optional(link),
    v6: optional(link),
  }),
  expand: (draft, wish, { at }) => {
    if (wish === undefined) return withFiltered(draft, [])
    for (const family of ['v4', 'v6'] as const) {
      for (const [field, value] of Object.entries(wish[family] ?? {})) {
        if (value !== undefined) checkAddress(value, family, `${at}.${family}.${field}`)
      }
    }
    const { name, v4, v6 } = wish
    const options = present({ hostName: name, v4: v4?.ip, v4Peer: v4?.peer, v6: v6?.ip, v6Peer: v6?.peer })
    const device = { kind: 'firmware-item', model: 'fw_cfg', properties: { name: ITEM }, from: at }
    const own = [v4?.ip, v6?.ip].flatMap((each) => each?.replace(/\/.*/, '') ?? [])
    return withParts(withFiltered(draft, own), [
      { key: 'metadata0', device, backend: { kind: 'metadata', options } },
    ])
  },
})

/** The draft whose only card has the guest's addresses, where its filters want some and it was given none. */
function withFiltered(draft: Draft, own: readonly string[]): Draft {
  const cards = Object.values(draft.devices).filter(({ kind }) => kind === 'nic')
  for (const { backend: key = '', from } of cards) {
    const backend = draft.backends[key]
    const { addresses, filters } = backend?.options ?? {}
    const names = typeof filters === 'string' ? filters.split(',') : []
    if (backend === undefined || addresses !== undefined || !usesAddresses(names)) continue
    if (own.length === 0 || cards.length > 1)
      refuse(`${from}.addresses`, `missing, want those that ${names.join(' and ')} let the guest send from`)
    const options = { ...backend.options, addresses: own.join(',') }
    return { ...draft, backends: { ...draft.backends, [key]: { ...backend, options } } }
  }
  return draft
}

function checkAddress(value: string, family: 'v4' | 'v6', at: string): void {
  const [ip = '', bits, ...rest] = value.split('/')
  const address = parseIp(ip)
  const wanted = `ip${family}` as const
  const isPrefix = bits === undefined || (/^\d{1,3}$/.test(bits) && Number(bits) <= ADDRESS_BITS[wanted])
  if (address !== undefined && familyOf(address) === wanted && isPrefix && rest.length === 0) return
  refuse(at, `${shown(value)}: want an address of ${wanted}`)
}
