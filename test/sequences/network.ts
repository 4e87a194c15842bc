import { agent, type Step } from './sequence.ts'

/** The interface that the sandbox's network calls are about. */
const NIC = { name: 'eth0', mac: '52:54:00:5E:00:01' } as const

const ADDRESS = '10.88.0.5'
const GATEWAY = '10.88.0.1'

/** The sandbox's network (M.1, 3; M.2): its one interface, its routes, and the gateway's hardware address. */
export function networkSteps(from: string): readonly Step[] {
  const network = { from, pending: 'network' } as const
  const wanted = {
    device: 'eth0',
    name: NIC.name,
    IPAddresses: [{ address: ADDRESS, mask: '24' }],
    mtu: 1450n,
    hwAddr: NIC.mac,
  }
  const Routes = [
    { dest: '', gateway: GATEWAY, device: NIC.name },
    { dest: '10.88.7.0/24', gateway: '', device: NIC.name, scope: 253 },
  ]
  const neighbour = {
    toIPAddress: { address: GATEWAY },
    device: NIC.name,
    lladdr: '52:54:00:5e:00:fe',
    state: 128,
  }
  return [
    {
      ...network,
      call: agent('updateInterface', { interface: wanted }),
      answers: { name: NIC.name, hwAddr: NIC.mac },
    },
    { ...network, call: agent('updateRoutes', { routes: { Routes } }) },
    { ...network, call: agent('addARPNeighbors', { neighbors: { ARPNeighbors: [neighbour] } }) },
  ]
}
