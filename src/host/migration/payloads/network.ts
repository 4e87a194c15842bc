import type { Any } from '../../../gen/google/protobuf/any.ts'
import { type EndpointBinding, Payload } from '../../../gen/state/host/network.ts'
import { kind, pack, unpack } from './kind.ts'
import { keysOf, type MachineFacts, plugStage } from './machine-facts.ts'

const KIND = kind('network', 1, Payload)

export function saveNetwork(facts: MachineFacts): Any {
  const { interfaces = [], routes = [] } = facts.guest?.network ?? {}
  const devices = facts.record.specification?.devices ?? {}
  const endpoints = keysOf(facts, ({ nic }) => nic !== undefined).map((key): [string, EndpointBinding] => {
    const mac = devices[key]?.nic?.mac.toLowerCase()
    const [own, ...others] = interfaces.filter((each) => each.hardwareAddress.toLowerCase() === mac)
    // The address of a card may be that of a bridge or a bond above it, too.
    const inGuest = others.length === 0 ? own : undefined
    return [key, { ...plugStage(facts, key), interface: inGuest }]
  })
  return pack(KIND, { endpoints: Object.fromEntries(endpoints), routes: [...routes] })
}

export function restoreNetwork(any: Any | undefined, where: string): Payload {
  return unpack(KIND, any, where)
}
