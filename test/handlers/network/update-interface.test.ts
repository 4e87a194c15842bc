import { setImmediate as turn } from 'node:timers/promises'
import { beforeEach, describe, expect, it } from 'vitest'
import { neverAborted } from '../../../src/base/abort.ts'
import {
  address,
  aNeighbor,
  anInterface,
  type GuestNetwork,
  guestNetwork,
} from '../../support/handlers/network/guest-network.ts'

const ETH0 = '02:00:00:00:00:02'
const ETH1 = '02:00:00:00:00:03'

describe('updateInterface', () => {
  let guest: GuestNetwork
  beforeEach(async () => {
    guest = await guestNetwork('eth0', 'eth1')
  })

  it('finds a link by its hardware address in either letter case, and configures it', async () => {
    const request = anInterface({
      name: 'net0',
      hwAddr: ETH0.toUpperCase(),
      mtu: 1400n,
      rawFlags: 0x80,
      IPAddresses: [address('10.0.0.2/24'), address('fd00::2/64'), address('10.9.0.1/32')],
    })
    await expect(update(request)).resolves.toBe(request)
    expect(guest.os.network.link('net0')).toMatchObject({ index: 2, mtu: 1400, arp: false, up: true })
    const made = guest.os.network.addresses().map(({ linkIndex, ...rest }) => [linkIndex, rest])
    expect(made).toEqual([
      [
        2,
        {
          ...{ family: 'ipv4', address: '10.0.0.2', prefixLength: 24, scope: 0, flags: 0x80 },
          broadcast: '10.0.0.255',
        },
      ],
      // IFA_F_NODAD: the address can be used at once, even as the source of a route.
      [2, { family: 'ipv6', address: 'fd00::2', prefixLength: 64, scope: 0, flags: 0x82 }],
      [2, { family: 'ipv4', address: '10.9.0.1', prefixLength: 32, scope: 0, flags: 0x80 }],
    ])
  })

  it('sets the hardware address of the link with the name when no link has that address', async () => {
    await update(anInterface({ name: 'eth1', hwAddr: '02:00:00:00:00:77' }))
    expect(guest.os.network.link('eth1')).toMatchObject({ hardwareAddress: '02:00:00:00:00:77', up: true })
  })

  it('moves the link-local address that the kernel has made of the hardware address before', async () => {
    const { network } = guest.os
    const { index } = network.link('eth1')
    network.setLink(index, { up: true })
    const made = { linkIndex: index, family: 'ipv6', prefixLength: 64, scope: 253, flags: 0x80 } as const
    const other = { ...made, address: 'fe80::2' }
    for (const each of [other, { ...made, address: 'fe80::ff:fe00:3' }]) network.replaceAddress(each)
    await update(anInterface({ name: 'eth1', hwAddr: '02:00:00:00:00:77' }))
    expect(network.addresses().map((each) => each.address)).toEqual(['fe80::2', 'fe80::ff:fe00:77'])
  })

  it('finds the link by its name alone when the request has no hardware address', async () => {
    await update(anInterface({ name: 'eth1', mtu: 1300n }))
    expect(guest.os.network.link('eth1')).toMatchObject({ hardwareAddress: ETH1, mtu: 1300 })
  })

  it('fails with `Link not found` and the address when the link does not exist', async () => {
    await expect(update(anInterface({ name: 'eth7', hwAddr: '02:00:00:00:00:77' }))).rejects.toMatchObject({
      code: 'INTERNAL',
      message: 'Link not found (Address: 02:00:00:00:00:77)',
    })
    await expect(update(anInterface({ name: 'eth7' }))).rejects.toThrow('Link not found (Name: eth7)')
  })

  it('never chooses the loopback link for a request without a hardware address', async () => {
    await expect(update(anInterface({ name: 'eth7', hwAddr: '00:00:00:00:00:00' }))).rejects.toThrow(
      'Link not found',
    )
    await expect(update(anInterface({ name: 'lo', hwAddr: ETH0 }))).rejects.toThrow(
      'interface.name "lo": the name of the loopback link',
    )
  })

  it('changes nothing when called again with the same request', async () => {
    const request = anInterface({
      hwAddr: ETH0,
      IPAddresses: [address('10.0.0.2/24'), address('fd00::2/64')],
    })
    await update(request)
    const before = guest.os.network.changes.length
    await update(request)
    expect(guest.os.network.changes.slice(before)).toEqual([])
  })

  it('keeps the MTU when the request has none, and addresses that the request does not name', async () => {
    await update(anInterface({ hwAddr: ETH0, mtu: 1400n, IPAddresses: [address('10.0.0.2/24')] }))
    await update(anInterface({ hwAddr: ETH0, mtu: 0n, IPAddresses: [address('10.0.1.2/24')] }))
    expect(guest.os.network.link('eth0').mtu).toBe(1400)
    expect(guest.os.network.addresses().map(({ address: text }) => text)).toEqual(['10.0.0.2', '10.0.1.2'])
  })

  it('changes the prefix of an IPv6 address', async () => {
    await update(anInterface({ hwAddr: ETH0, IPAddresses: [address('fd00::2/64')] }))
    await update(anInterface({ hwAddr: ETH0, IPAddresses: [address('fd00::2/48')] }))
    expect(guest.os.network.addresses()).toMatchObject([{ address: 'fd00::2', prefixLength: 48 }])
  })

  it('skips IPv6 addresses when IPv6 is disabled', async () => {
    guest.os.network.addLink({ name: 'eth2', ipv6: false })
    const IPAddresses = [address('10.0.0.2/24'), address('fd00::2/64')]
    await update(anInterface({ name: 'eth2', IPAddresses }))
    expect(guest.os.network.addresses().map(({ address: text }) => text)).toEqual(['10.0.0.2'])
    expect(guest.record.settings().map(({ subject }) => subject)).toEqual(['eth2', '10.0.0.2/24'])
  })

  describe('when the name is taken', () => {
    beforeEach(async () => {
      await update(
        anInterface({ name: 'eth0', IPAddresses: [address('10.0.0.2/24'), address('fd00::2/64')] }),
      )
      await update(
        anInterface({ name: 'eth1', IPAddresses: [address('10.1.0.2/24'), address('fd01::2/64')] }),
      )
      guest.os.network.addRoute({
        ...{ family: 'ipv4', destination: { address: '0.0.0.0', prefixLength: 0 }, gateway: '10.1.0.1' },
        ...{ linkIndex: 3, scope: 0, protocol: 3, flags: 0 },
      })
      await guest.handlers.addNeighbors([aNeighbor('10.0.0.9'), aNeighbor('fd01::9', { device: 'eth1' })])
    })

    it('swaps the names of both links, and each keeps its addresses, routes and neighbours', async () => {
      await update(anInterface({ name: 'eth1', hwAddr: ETH0 }))
      expect(guest.os.network.link('eth1')).toMatchObject({ hardwareAddress: ETH0, up: true })
      expect(guest.os.network.link('eth0')).toMatchObject({ hardwareAddress: ETH1, up: true })
      const addresses = guest.os.network
        .addresses()
        .map(({ linkIndex, address: text }) => `${linkIndex} ${text}`)
      expect(addresses.toSorted()).toEqual(['2 10.0.0.2', '2 fd00::2', '3 10.1.0.2', '3 fd01::2'])
      expect(guest.os.network.routes()).toContainEqual(
        expect.objectContaining({ gateway: '10.1.0.1', linkIndex: 3 }),
      )
      expect(guest.os.network.neighbors()).toMatchObject([
        { address: '10.0.0.9', linkIndex: 2, state: 0x80 },
        { address: 'fd01::9', linkIndex: 3, state: 0x80 },
      ])
    })

    it('handles two concurrent calls that request each other’s names', async () => {
      await Promise.all([
        update(anInterface({ name: 'eth1', hwAddr: ETH0 })),
        update(anInterface({ name: 'eth0', hwAddr: ETH1 })),
      ])
      expect(guest.os.network.link('eth1')).toMatchObject({ hardwareAddress: ETH0, up: true })
      expect(guest.os.network.link('eth0')).toMatchObject({ hardwareAddress: ETH1, up: true })
    })

    it('restores everything when any one of its changes fails', async () => {
      const before = guest.state()
      const request = anInterface({
        ...{ name: 'eth1', hwAddr: ETH0, mtu: 1400n },
        IPAddresses: [address('10.0.5.2/24'), address('fd05::2/64')],
      })
      let failures = 0
      for (let at = 1; ; at++) {
        let count = 0
        guest.os.network.failWith = () => {
          count += 1
          return count === at ? 'EPERM' : undefined
        }
        const failed = await update(request).then(
          () => false,
          () => true,
        )
        guest.os.network.failWith = () => undefined
        if (!failed) break
        failures += 1
        expect(guest.state(), `change ${at}`).toEqual(before)
      }
      expect(failures).toBe(12)
    })
  })

  it.each([
    ['begin alike', 'enx00112233aa00', 'enx00112233aa01'],
    ['have few letters of many bytes', 'äääääää', 'ööööööö'],
  ])('swaps names that %s, and swaps them back when an address fails', async (_what, one, other) => {
    guest = await guestNetwork(one, other)
    const request = anInterface({ name: other, hwAddr: ETH0, IPAddresses: [address('10.0.0.2/24')] })
    guest.os.network.failWith = (call) => (call === 'replaceAddress' ? 'EPERM' : undefined)
    await expect(update(request)).rejects.toThrow('EPERM')
    guest.os.network.failWith = () => undefined
    const linkNames = () => guest.os.network.links().map(({ name }) => name)
    expect(linkNames()).toEqual(['lo', one, other])
    await update(request)
    expect(linkNames()).toEqual(['lo', other, one])
  })

  it('restores MTU and ARP of a link that keeps its name when an address fails', async () => {
    await update(anInterface({ hwAddr: ETH0 }))
    const before = guest.state()
    guest.os.network.failWith = (call) => (call === 'replaceAddress' ? 'EPERM' : undefined)
    const changes = { mtu: 1400n, rawFlags: 0x80, IPAddresses: [address('10.0.0.2/24')] }
    await expect(update(anInterface({ hwAddr: ETH0, ...changes }))).rejects.toThrow('EPERM')
    expect(guest.state()).toEqual(before)
    expect(guest.lines.map(({ message }) => message)).not.toContain('link not restored')
  })

  it('reports the error even when the kernel then lists no links', async () => {
    const unlisted = () => {
      throw new Error('list links: ENOBUFS')
    }
    guest.os.network.failWith = (call) => {
      if (call !== 'replaceAddress') return undefined
      Object.assign(guest.os.network, { links: unlisted, addresses: unlisted, routes: unlisted })
      return 'EPERM'
    }
    const request = anInterface({ hwAddr: ETH0, IPAddresses: [address('10.0.0.2/24')] })
    await expect(update(request)).rejects.toThrow('EPERM')
    expect(guest.lines).toContainEqual({
      message: 'link not restored',
      fields: { what: 'links', error: 'list links: ENOBUFS' },
    })
  })

  describe('of a hot-plugged card', () => {
    const DEVICE = '/sys/devices/pci0000:00/0000:00:05.0'
    beforeEach(() => guest.os.files.makeDirectories('/sys/devices/pci0000:00'))

    it('waits for the card, and sets its hardware address and name', async () => {
      const updating = update(anInterface({ name: 'data0', hwAddr: '02:00:00:00:00:99', devicePath: '05' }))
      await turn()
      guest.os.network.addLink({ name: 'eth2' })
      await guest.os.files.makeDirectories(`${DEVICE}/virtio4/net/eth2`)
      guest.os.uevents.send(
        `add@${DEVICE.slice(4)}/virtio4/net/eth2\0ACTION=add\0DEVPATH=${DEVICE.slice(4)}/virtio4/net/eth2\0SUBSYSTEM=net\0INTERFACE=eth2\0`,
      )
      await updating
      expect(guest.os.network.link('data0')).toMatchObject({ hardwareAddress: '02:00:00:00:00:99', up: true })
    })

    it('only warns when the hardware address cannot be set', async () => {
      await guest.os.files.makeDirectories(`${DEVICE}/virtio4/net/eth1`)
      guest.os.network.failWith = (_call, about) => (about.includes('hardwareAddress') ? 'EBUSY' : undefined)
      await update(anInterface({ name: 'data0', hwAddr: '02:00:00:00:00:99', devicePath: '05' }))
      expect(guest.os.network.link('data0')).toMatchObject({ hardwareAddress: ETH1, up: true })
      expect(guest.lines.map(({ message }) => message)).toContain('hardware address not set')
    })

    it('names the missing device when the time is up', async () => {
      const updating = update(anInterface({ name: 'data0', devicePath: '05' }))
      await turn()
      guest.os.clock.advance(3000)
      await expect(updating).rejects.toThrow('waiting for uevent of a network device at PCI path 05')
      expect(guest.os.network.changes).toEqual([])
    })
  })

  it.each([
    ['interface.name', { name: '' }],
    ['interface.name', { name: 'a-name-too-long0' }],
    ['interface.name', { name: 'a/b' }],
    ['interface.name', { name: 'ääääääää' }],
    // The kernel takes it as a pattern and fills in a number.
    ['interface.name', { name: 'eth%d' }],
    ['interface.hwAddr', { hwAddr: '02:00' + ':zz' }],
    // The kernel would use only the first six bytes.
    ['interface.hwAddr', { hwAddr: `${ETH0}:77` }],
    ['interface.mtu', { mtu: 2n ** 40n }],
    ['PCI path', { devicePath: 'zz' }],
    ['interface.IPAddresses[0].address', { IPAddresses: [{ address: 'ten', mask: '24' }] }],
    ['interface.IPAddresses[0].mask', { IPAddresses: [{ address: '10.0.0.1', mask: '33' }] }],
    ['interface.IPAddresses[0].mask', { IPAddresses: [{ address: '10.0.0.1', mask: '255.255.255.0' }] }],
    ['interface.IPAddresses[1].mask', { IPAddresses: [address('10.0.0.1/8'), address('fd00::1/129')] }],
    ['interface.IPAddresses[0].mask', { IPAddresses: [{ address: 'fd00::1', mask: '' }] }],
  ])('refuses a wrong %s and changes nothing', async (field, fields) => {
    await expect(update(anInterface({ hwAddr: ETH0, ...fields }))).rejects.toMatchObject({
      code: 'INVALID_ARGUMENT',
      message: expect.stringContaining(field),
    })
    expect(guest.os.network.changes).toEqual([])
  })

  it('passes on the kernel’s error about an MTU', async () => {
    await expect(update(anInterface({ hwAddr: ETH0, mtu: 7n }))).rejects.toMatchObject({
      code: 'INTERNAL',
      message: expect.stringContaining('mtu=7 up=true: EINVAL'),
    })
  })

  it('records what it set and the source of the change', async () => {
    await update(anInterface({ hwAddr: ETH0, IPAddresses: [address('10.0.0.2/24')] }))
    expect(guest.record.settings()).toEqual([
      { kind: 'interface', subject: 'eth0', value: `${ETH0} mtu 1500`, source: 'rpc' },
      { kind: 'address', subject: '10.0.0.2/24', value: 'eth0', source: 'rpc' },
    ])
    expect(guest.lines).toContainEqual({
      message: 'network set',
      fields: expect.objectContaining({ source: 'rpc', count: 2 }),
    })
  })

  function update(request: ReturnType<typeof anInterface>) {
    return guest.handlers.updateInterface(request, neverAborted)
  }
})
