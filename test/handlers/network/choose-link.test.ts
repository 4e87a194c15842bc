import { describe, expect, it } from 'vitest'
import { chooseLink } from '../../../src/handlers/network/vm-metadata/configure-network.ts'
import { FakeNetwork } from '../../support/fakes/fake-network.ts'

function choose(network: FakeNetwork, wanted = '') {
  const chosen = chooseLink(network.links(), wanted)
  return chosen && [chosen.link.name, ...chosen.others.map(({ name }) => name)]
}

function networkOf(...links: Parameters<FakeNetwork['addLink']>[0][]): FakeNetwork {
  const network = new FakeNetwork()
  for (const link of links) network.addLink(link)
  return network
}

describe('chooseLink', () => {
  it('chooses the only Ethernet link', () => {
    expect(choose(networkOf({ name: 'tun0', type: 65534 }, { name: 'eth0' }))).toEqual(['eth0'])
  })

  it('chooses the first of several, and returns the others', () => {
    expect(choose(networkOf({ name: 'eth1' }, { name: 'eth0' }))).toEqual(['eth1', 'eth0'])
  })

  it('prefers a card to a link without a device', () => {
    expect(choose(networkOf({ name: 'br0', parentDevice: '' }, { name: 'eth0' }))).toEqual(['eth0'])
    expect(choose(networkOf({ name: 'dummy0', parentDevice: '' }))).toEqual(['dummy0'])
  })

  it('chooses the link that the configuration names, by name or by MAC address', () => {
    const network = networkOf({ name: 'eth0' }, { name: 'eth1', hardwareAddress: '52:54:00:00:00:0a' })
    expect(choose(network, 'eth1')).toEqual(['eth1'])
    expect(choose(network, '52:54:00:00:00:0A')).toEqual(['eth1'])
    expect(choose(network, 'eth2')).toBeUndefined()
  })

  it('chooses only Ethernet links when the configuration names none', () => {
    expect(choose(networkOf())).toBeUndefined()
    expect(choose(networkOf(), 'lo')).toEqual(['lo'])
  })
})
