import { describe, expect, it } from 'vitest'
import { VMMetadata } from '../../../src/gen/vm.ts'
import { NetworkRecord } from '../../../src/handlers/network/network-record.ts'
import { configureNetwork } from '../../../src/handlers/network/vm-metadata/configure-network.ts'
import type { Route } from '../../../src/os/network/network.ts'
import { FakeOs } from '../../support/fakes/fake-os.ts'
import { recordingLog } from '../../support/fakes/recording-log.ts'
import { OPT_ITEM } from '../../support/handlers/network/firmware-tree.ts'

const V4 = { ip: '10.0.0.2', peerIp: '10.0.0.1' }
const V6 = { ip: 'fd00::2', peerIp: 'fd00::1' }
const ACCEPT_RA = '/proc/sys/net/ipv6/conf/eth0/accept_ra'
const ADD_ETH0 =
  'add@/devices/virtio0/net/eth0\0ACTION=add\0DEVPATH=/devices/virtio0/net/eth0\0SUBSYSTEM=net\0INTERFACE=eth0'

function guest({ card = true, wanted = '' } = {}) {
  const os = new FakeOs()
  const { lines, log } = recordingLog()
  const { clock, files, network, uevents } = os
  if (card) network.addLink({ name: 'eth0' })
  const record = new NetworkRecord(log)
  const dependencies = { clock, files, network, uevents, log, record, interface: wanted, timeoutMs: 3000 }
  return {
    ...os,
    network,
    lines,
    apply: (networkConfig: { readonly v4?: typeof V4; readonly v6?: typeof V6 }) =>
      configureNetwork(dependencies, { item: OPT_ITEM, metadata: VMMetadata.create({ networkConfig }) }),
    settings: () => record.settings().map(({ kind, subject, value }) => `${kind} ${subject}: ${value}`),
    addresses: () =>
      network.addresses().map(({ address, peer, prefixLength }) => `${address} peer ${peer}/${prefixLength}`),
    defaults: () =>
      network
        .routes()
        .filter(({ destination }) => destination.prefixLength === 0)
        .map(({ gateway, linkIndex }) => `${gateway} on ${linkIndex}`),
  }
}

function defaultRoute(changes: Partial<Route>): Route {
  const destination = { address: '0.0.0.0', prefixLength: 0 }
  return { family: 'ipv4', destination, linkIndex: 2, scope: 0, protocol: 3, flags: 0, ...changes }
}

describe('configureNetwork', () => {
  it('sets both addresses with their peers, and default routes through the peers', async () => {
    const { apply, addresses, defaults, lines, network, settings } = guest()
    expect(await apply({ v4: V4, v6: V6 })).toBe(true)
    expect(network.link('eth0').up).toBe(true)
    expect(addresses()).toEqual(['10.0.0.2 peer 10.0.0.1/32', 'fd00::2 peer fd00::1/128'])
    expect(defaults()).toEqual(['10.0.0.1 on 2', 'fd00::1 on 2'])
    expect(lines).toMatchObject([{ level: 'info', message: 'network set', fields: { source: 'metadata' } }])
    expect(settings()).toEqual([
      `interface eth0: up, from ${OPT_ITEM}`,
      'address 10.0.0.2/32: eth0 peer 10.0.0.1',
      'address fd00::2/128: eth0 peer fd00::1',
      'route 0.0.0.0/0: via 10.0.0.1 dev eth0',
      'route ::/0: via fd00::1 dev eth0',
    ])
  })

  it('makes an IPv6 address usable at once', async () => {
    const { apply, network } = guest()
    await apply({ v6: V6 })
    expect(Number(network.addresses()[0]?.flags) & 2).toBe(2)
  })

  it.each([
    ['IPv4', { v4: V4 }],
    ['IPv6', { v6: V6 }],
  ])('adds the default route (%s) before the kernel has added the route to the peer', async (_, config) => {
    const { apply, defaults, network } = guest()
    const routes = network.routes.bind(network)
    network.addAddress = (address) => {
      network.replaceAddress(address)
      for (const route of routes()) network.removeRoute(route)
    }
    await apply(config)
    expect(defaults()).toHaveLength(1)
  })

  it('disables router advertisements before the link is up', async () => {
    const { apply, files, network } = guest()
    await files.put(ACCEPT_RA, '1\n')
    const write = files.write.bind(files)
    files.write = (path, data) => {
      expect(network.link('eth0').up).toBe(false)
      return write(path, data)
    }
    await apply({ v4: V4 })
    expect(await files.readText(ACCEPT_RA)).toBe('0')
  })

  it('changes nothing when the same metadata is applied again', async () => {
    const { apply, network } = guest()
    await apply({ v4: V4, v6: V6 })
    const { length } = network.changes
    expect(await apply({ v4: V4, v6: V6 })).toBe(false)
    expect(network.changes).toHaveLength(length)
  })

  it('removes settings that the metadata no longer has', async () => {
    const { apply, addresses, defaults } = guest()
    await apply({ v4: V4, v6: V6 })
    expect(await apply({ v4: { ip: '10.0.0.9', peerIp: '10.0.0.8' } })).toBe(true)
    expect(addresses()).toEqual(['10.0.0.9 peer 10.0.0.8/32'])
    expect(defaults()).toEqual(['10.0.0.8 on 2'])
    expect(await apply({})).toBe(true)
    expect([...addresses(), ...defaults()]).toEqual([])
  })

  it('replaces the address when the peer stays the same', async () => {
    const { apply, addresses, defaults } = guest()
    await apply({ v4: V4 })
    await apply({ v4: { ...V4, ip: '10.0.0.9' } })
    expect(addresses()).toEqual(['10.0.0.9 peer 10.0.0.1/32'])
    expect(defaults()).toEqual(['10.0.0.1 on 2'])
  })

  it('keeps settings from other sources when metadata changes and when it is applied again', async () => {
    const { apply, addresses, defaults, lines, network, settings } = guest()
    await apply({ v4: V4 })
    network.addAddress({
      linkIndex: 2,
      family: 'ipv4',
      address: '192.168.0.2',
      prefixLength: 24,
      scope: 0,
      flags: 0,
    })
    network.replaceRoute(defaultRoute({ gateway: '192.168.0.1' }))
    const elsewhere = { address: '10.9.0.0', prefixLength: 16 }
    network.addRoute(defaultRoute({ destination: elsewhere, gateway: V4.peerIp }))
    expect(await apply({ v4: V4 })).toBe(false)
    expect(defaults()).toEqual(['192.168.0.1 on 2'])
    expect(settings().at(-1)).toBe('address 10.0.0.2/32: eth0 peer 10.0.0.1')
    expect(lines).toContainEqual({
      level: 'info',
      message: 'existing default route kept',
      fields: { family: 'ipv4', gateway: '192.168.0.1' },
    })
    await apply({})
    expect(addresses()).toContain('192.168.0.2 peer undefined/24')
    expect(defaults()).toEqual(['192.168.0.1 on 2'])
  })

  it('replaces the route from a router advertisement', async () => {
    const { apply, defaults, network } = guest()
    network.setLink(2, { up: true })
    network.addAddress({
      linkIndex: 2,
      family: 'ipv6',
      address: 'fe80::2',
      prefixLength: 64,
      scope: 253,
      flags: 0,
    })
    const destination = { address: '::', prefixLength: 0 }
    network.addRoute(
      defaultRoute({ family: 'ipv6', destination, gateway: 'fe80::1', protocol: 9, priority: 1024 }),
    )
    await apply({ v6: V6 })
    expect(defaults()).toEqual(['fd00::1 on 2'])
  })

  it('applies one family when the address of the other is wrong', async () => {
    const { apply, addresses, lines } = guest()
    await apply({ v4: { ...V4, ip: '10.0.0.2/24' }, v6: V6 })
    expect(addresses()).toEqual(['fd00::2 peer fd00::1/128'])
    expect(lines[0]).toMatchObject({ level: 'warn', message: 'part of the VM metadata ignored' })
    expect(lines[0]?.fields.problem).toContain('network_config.v4.ip 10.0.0.2/24')
  })

  it.each(['replaceAddress', 'addRoute'])(
    'undoes a family that the kernel refuses (%s), and applies the other',
    async (call) => {
      const { apply, addresses, defaults, lines, network } = guest()
      network.failWith = (made, about) =>
        made === call && (about.startsWith('fd00::2') || about.includes('via fd00::1')) ? 'EACCES' : undefined
      await apply({ v4: V4, v6: V6 })
      expect(addresses()).toEqual(['10.0.0.2 peer 10.0.0.1/32'])
      expect(defaults()).toEqual(['10.0.0.1 on 2'])
      expect(lines[0]).toMatchObject({
        level: 'warn',
        message: 'VM metadata refused by the kernel',
        fields: { family: 'ipv6', error: expect.stringContaining('EACCES') },
      })
    },
  )

  it('keeps the old address of a family when the kernel refuses the new one', async () => {
    const { apply, addresses, defaults, network } = guest()
    await apply({ v4: V4 })
    network.failWith = (_, about) => (about.startsWith('10.0.0.9') ? 'EINVAL' : undefined)
    await apply({ v4: { ip: '10.0.0.9', peerIp: '10.0.0.8' } })
    expect(addresses()).toEqual(['10.0.0.2 peer 10.0.0.1/32'])
    expect(defaults()).toEqual(['10.0.0.1 on 2'])
  })

  it('warns when several links are candidates', async () => {
    const { apply, lines, network } = guest()
    network.addLink({ name: 'eth1' })
    await apply({ v4: V4 })
    expect(lines[0]).toEqual({
      level: 'warn',
      message: 'VM metadata does not name its interface',
      fields: { used: 'eth0', ignored: 'eth1' },
    })
  })

  it('waits for a card that the driver has not found yet', async () => {
    const { apply, addresses, clock, network, uevents } = guest({ card: false })
    const applying = apply({ v4: V4 })
    await expect.poll(() => uevents.listeners.size).toBe(1)
    network.addLink({ name: 'eth0' })
    uevents.send(ADD_ETH0)
    expect(await applying).toBe(true)
    expect(addresses()).toEqual(['10.0.0.2 peer 10.0.0.1/32'])
    expect([uevents.listeners.size, clock.sleeping]).toEqual([0, 0])
  })

  it('does not wait for a card when the metadata has no address', async () => {
    expect(await guest({ card: false }).apply({})).toBe(false)
  })
})
