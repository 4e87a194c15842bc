import { expect } from 'vitest'
import { agent, type Step } from './sequence.ts'

/** The interface that the network calls configure: it has this hardware address, and gets this name. */
export const NIC = { name: 'eth1', mac: '52:54:00:5E:00:01' } as const

const ADDRESS = '10.88.0.5'
const GATEWAY = '10.88.0.1'
const NEXT_DOOR = '10.88.7.0/24'
const LINK_SCOPE = 253
const PERMANENT = 128

/** The sandbox's network (M.1, 3; M.2): its one interface, its routes, and the gateway's hardware address. */
export function networkSteps(from: string): readonly Step[] {
  const { name, mac } = NIC
  const IPAddresses = [{ address: ADDRESS, mask: '24' }]
  const wanted = { device: 'eth0', name, IPAddresses, mtu: 1450n, hwAddr: mac }
  const Routes = [
    { dest: '', gateway: GATEWAY, device: name },
    { dest: NEXT_DOOR, gateway: '', device: name, scope: LINK_SCOPE },
  ]
  const ARPNeighbors = [
    { toIPAddress: { address: GATEWAY }, device: name, lladdr: '52:54:00:5e:00:fe', state: PERMANENT },
  ]
  return [
    { from, call: agent('updateInterface', { interface: wanted }), answers: { name, hwAddr: mac } },
    {
      from,
      call: agent('updateRoutes', { routes: { Routes } }),
      answers: {
        Routes: expect.arrayContaining([expect.objectContaining({ dest: NEXT_DOOR, device: name })]),
      },
    },
    { from, call: agent('addARPNeighbors', { neighbors: { ARPNeighbors } }) },
  ]
}
