import { beforeEach, describe, expect, it } from 'vitest'
import { neverAborted } from '../../../src/base/abort.ts'
import type { Route } from '../../../src/gen/types.ts'
import { kernelError } from '../../../src/os/errors.ts'
import {
  address,
  anInterface,
  aRoute,
  type GuestNetwork,
  guestNetwork,
} from '../../support/handlers/network/guest-network.ts'

const V6 = { family: 1 } as const

describe('updateRoutes', () => {
  let guest: GuestNetwork
  beforeEach(async () => {
    guest = await guestNetwork('eth0', 'eth1')
    const { handlers } = guest
    await handlers.updateInterface(
      anInterface({ IPAddresses: [address('10.0.0.2/24'), address('fd00::2/64')] }),
      neverAborted,
    )
    await handlers.updateInterface(
      anInterface({ name: 'eth1', IPAddresses: [address('10.1.0.2/24')] }),
      neverAborted,
    )
  })

  it('adds routes of both families, those without a gateway first', async () => {
    await update(
      aRoute({ dest: '', gateway: '169.254.1.1' }),
      aRoute({ dest: '169.254.1.1/32', scope: 253 }),
      aRoute({ ...V6, dest: '', gateway: 'fd09::1', mtu: 1400 }),
      aRoute({ ...V6, dest: 'fd09::1' }),
    )
    expect(own()).toEqual([
      expect.objectContaining({ destination: { address: '169.254.1.1', prefixLength: 32 }, scope: 253 }),
      expect.objectContaining({
        destination: { address: '0.0.0.0', prefixLength: 0 },
        gateway: '169.254.1.1',
      }),
      expect.objectContaining({ destination: { address: 'fd09::1', prefixLength: 128 } }),
      expect.objectContaining({
        destination: { address: '::', prefixLength: 0 },
        gateway: 'fd09::1',
        mtu: 1400,
      }),
    ])
  })

  it('returns the same response as ListRoutes', async () => {
    const answer = await update(
      aRoute({ dest: '10.7.0.0/16', gateway: '10.0.0.1' }),
      aRoute({ dest: '10.8.0.0/16', scope: 253 }),
      aRoute({ ...V6, dest: 'fd07::/32', gateway: 'fd00::1' }),
    )
    expect(answer).toEqual(guest.handlers.listRoutes())
    expect(answer).toContainEqual(aRoute({ dest: '0.0.0.0', gateway: '10.0.0.1' }))
    expect(answer).toContainEqual(aRoute({ dest: '10.8.0.0/16', scope: 253 }))
    expect(answer).toContainEqual(aRoute({ ...V6, dest: '::1', gateway: 'fd00::1' }))
  })

  it.each([
    ['192.168.157.204/20', 'ipv4', '192.168.144.0/20'],
    ['10.7.0.1', 'ipv4', '10.7.0.1/32'],
    ['0.0.0.0/0', 'ipv4', '0.0.0.0/0'],
    ['0.0.0.0', 'ipv4', '0.0.0.0/0'],
    ['fd00:1:2:3::9/48', 'ipv6', 'fd00:1:2::/48'],
    ['::', 'ipv6', '::/0'],
  ])('reads %s as the %s destination %s', async (dest, family, destination) => {
    const gateway = family === 'ipv4' ? '10.0.0.1' : 'fd00::1'
    await update(aRoute({ dest, gateway, family: family === 'ipv4' ? 0 : 1 }))
    expect(own().map((route) => `${route.destination.address}/${route.destination.prefixLength}`)).toEqual([
      destination,
    ])
  })

  it('takes a full address as the preferred source, and a network as a limit on the source', async () => {
    await update(
      aRoute({ dest: '10.7.0.0/16', source: '10.0.0.2' }),
      aRoute({ dest: '10.8.0.0/16', source: '10.0.0.2/32' }),
      aRoute({ ...V6, dest: 'fd07::/32', source: 'fd00::/64' }),
    )
    expect(own()).toMatchObject([
      { preferredSource: '10.0.0.2' },
      { preferredSource: '10.0.0.2' },
      { source: { address: 'fd00::', prefixLength: 64 } },
    ])
  })

  it('sets the on-link flag, but not the flags that the kernel only reports', async () => {
    const ONLINK = 4
    const LINKDOWN = 16
    await update(aRoute({ dest: '10.7.0.0/16', gateway: '192.168.1.1', flags: ONLINK | LINKDOWN }))
    expect(own()).toMatchObject([{ gateway: '192.168.1.1', flags: ONLINK }])
  })

  it('changes nothing when called again with the same routes', async () => {
    const routes = [
      aRoute({ dest: '10.0.0.0/24', source: '10.0.0.2', scope: 253 }),
      aRoute({ dest: '', gateway: '10.0.0.1', source: '10.0.0.2', mtu: 1400 }),
      aRoute({ ...V6, dest: '', gateway: 'fd00::1' }),
    ]
    await update(...routes)
    const before = guest.os.network.changes.length
    await update(...routes)
    expect(guest.os.network.changes.slice(before)).toEqual([])
  })

  it('keeps a matching route of the kernel instead of adding another', async () => {
    const before = guest.state()
    await update(aRoute({ dest: '10.0.0.0/24', scope: 253 }))
    expect(guest.state()).toEqual(before)
  })

  it('adds its route before one that the kernel made for another link, and keeps both', async () => {
    await update(aRoute({ dest: '10.1.0.0/24', scope: 253 }))
    const same = guest.os.network.routes().filter(({ destination }) => destination.address === '10.1.0.0')
    expect(same.map(({ protocol, linkIndex }) => [protocol, linkIndex])).toEqual([
      [3, 2],
      [2, 3],
    ])
  })

  it('replaces the route that it added before one of the kernel, so that only one remains', async () => {
    await update(aRoute({ dest: '10.1.0.0/24', gateway: '10.0.0.1' }))
    await update(aRoute({ dest: '10.1.0.0/24', gateway: '10.0.0.3' }))
    await update(aRoute({ dest: '10.1.0.0/24', gateway: '10.0.0.9' }))
    const same = guest.os.network.routes().filter(({ destination }) => destination.address === '10.1.0.0')
    expect(same.map(({ protocol, gateway }) => [protocol, gateway])).toEqual([
      [3, '10.0.0.9'],
      [2, undefined],
    ])
  })

  it('replaces a route with the same destination, and keeps all others', async () => {
    await update(aRoute({ dest: '10.7.0.0/16', gateway: '10.0.0.1' }), aRoute({ dest: '10.7.1.0/24' }))
    await update(aRoute({ dest: '10.7.0.0/16', gateway: '10.0.0.9' }))
    expect(own().map(({ destination, gateway }) => [destination.address, gateway])).toEqual(
      expect.arrayContaining([
        ['10.7.0.0', '10.0.0.9'],
        ['10.7.1.0', undefined],
      ]),
    )
    expect(own()).toHaveLength(2)
  })

  it('adds a repeated route once, and the last of two routes with the same destination', async () => {
    const route = aRoute({ dest: '10.7.0.0/16', gateway: '10.0.0.1' })
    await update(route, route, aRoute({ ...route, gateway: '10.0.0.3' }))
    expect(own()).toMatchObject([{ gateway: '10.0.0.3' }])
  })

  it('counts a route that already exists as added', async () => {
    guest.os.network.failWith = (call) => (call === 'replaceRoute' ? 'EEXIST' : undefined)
    await expect(update(aRoute({ dest: '10.7.0.0/16' }))).resolves.toBeDefined()
  })

  it('restores the routes when the kernel refuses one of them', async () => {
    await update(aRoute({ dest: '10.7.0.0/16', gateway: '10.0.0.1' }))
    const before = guest.state()
    const noted = guest.record.settings()
    await expect(
      update(
        aRoute({ dest: '10.7.0.0/16', gateway: '10.0.0.9' }),
        aRoute({ dest: '10.8.0.0/16' }),
        aRoute({ dest: '10.1.0.0/24', scope: 253 }),
        aRoute({ dest: '10.9.0.0/16', gateway: '192.168.1.1' }),
      ),
    ).rejects.toMatchObject({
      code: 'INTERNAL',
      message: 'Failed to add IP v4 route',
      cause: expect.objectContaining({
        message: expect.stringContaining('10.9.0.0/16 via 192.168.1.1 on link 2: ENETUNREACH'),
      }),
    })
    expect(guest.state()).toEqual(before)
    expect(guest.record.settings()).toEqual(noted)
  })

  it('undoes a batch when the kernel’s answers are lost', async () => {
    await update(aRoute({ dest: '10.7.0.0/16', gateway: '10.0.0.1' }))
    const before = guest.state()
    const { network } = guest.os
    const put = network.putRoutes.bind(network)
    // The agent cannot see which routes were added before the answers were lost.
    network.putRoutes = (wanted) => {
      put(wanted.slice(0, 2))
      throw kernelError('add', 'by netlink', 'ENOBUFS')
    }
    const changed = aRoute({ dest: '10.7.0.0/16', gateway: '10.0.0.9' })
    const others = ['10.8.0.0/16', '10.9.0.0/16'].map((dest) => aRoute({ dest, gateway: '10.0.0.1' }))
    await expect(update(changed, ...others)).rejects.toThrow('ENOBUFS')
    expect(guest.state()).toEqual(before)
  })

  it('looks for every link before it changes anything', async () => {
    await expect(
      update(aRoute({ dest: '10.7.0.0/16' }), aRoute({ dest: '10.8.0.0/16', device: 'eth9' })),
    ).rejects.toMatchObject({ code: 'INTERNAL', message: 'Link not found (Name: eth9)' })
    expect(own()).toEqual([])
  })

  it.each([
    ['dest', { dest: 'ten' }],
    ['dest', { dest: '10.0.0.0/33' }],
    ['dest', { dest: '10.0.0.0/8/8' }],
    ['dest', { dest: '10.0.0.0/' }],
    ['dest', { dest: '10.0.0.0/-1' }],
    ['dest', { dest: 'fd00::/64' }],
    ['dest', { ...V6, dest: '10.0.0.0/8' }],
    ['dest', { ...V6, dest: 'fd00::/129' }],
    ['gateway', { dest: '10.0.0.0/8', gateway: 'fd00::1' }],
    ['gateway', { ...V6, dest: 'fd00::/64', gateway: '10.0.0.1' }],
    ['gateway', { dest: '10.0.0.0/8', gateway: '10.0.0.1/24' }],
    ['source', { dest: '10.0.0.0/8', source: 'fd00::1' }],
    ['source', { dest: '10.0.0.0/8', source: '10.0.0.0/40' }],
    ['scope', { dest: '10.0.0.0/8', scope: 256 }],
    ['family', { dest: '10.0.0.0/8', family: 7 as 0 }],
  ])('refuses a wrong %s and names the field: %j', async (field, fields) => {
    await expect(update(aRoute({ dest: '10.7.0.0/16' }), aRoute(fields))).rejects.toMatchObject({
      code: 'INVALID_ARGUMENT',
      message: expect.stringContaining(`routes[1].${field} `),
    })
    expect(own()).toEqual([])
  })

  it('records the routes that it set', async () => {
    await update(aRoute({ dest: '10.7.0.0/16', gateway: '10.0.0.1' }), aRoute({ dest: '10.8.0.0/16' }))
    expect(guest.record.settings().filter(({ kind }) => kind === 'route')).toEqual([
      { kind: 'route', subject: '10.7.0.0/16', value: 'via 10.0.0.1 dev eth0', source: 'rpc' },
      { kind: 'route', subject: '10.8.0.0/16', value: 'dev eth0', source: 'rpc' },
    ])
  })

  function update(...routes: readonly Route[]) {
    return guest.handlers.updateRoutes(routes)
  }

  function own() {
    return guest.os.network.routes().filter(({ protocol }) => protocol !== 2)
  }
})

describe('listRoutes', () => {
  it('leaves out default routes without a gateway', async () => {
    const guest = await guestNetwork('eth0')
    await guest.handlers.updateInterface(anInterface({}), neverAborted)
    await guest.handlers.updateRoutes([aRoute({ dest: '' }), aRoute({ ...V6, dest: '' })])
    expect(guest.handlers.listRoutes()).toEqual([])
    expect(guest.os.network.routes()).toHaveLength(2)
  })
})
