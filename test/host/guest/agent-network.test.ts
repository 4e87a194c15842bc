import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { type AgentProcess, startAgent } from '../../support/host/agent-process.ts'
import { makeNetworkNamespace, type NetworkNamespace } from '../../support/host/network-namespace.ts'

const ETH0 = '02:00:00:00:00:01'
const ETH1 = '02:00:00:00:00:02'
const V6 = { family: 1 } as const
const ONLINK = 4

interface ShownLink {
  readonly ifname: string
  readonly address: string
  readonly mtu: number
  readonly flags: readonly string[]
  readonly addr_info: readonly {
    readonly local: string
    readonly prefixlen: number
    readonly scope: string
  }[]
}

interface ShownRoute {
  readonly dst: string
  readonly gateway?: string
  readonly dev?: string
  readonly prefsrc?: string
  readonly protocol?: string
  readonly flags: readonly string[]
  readonly metrics?: readonly { readonly mtu?: number }[]
}

describe('the calls about the network', () => {
  let namespace: NetworkNamespace
  let started: AgentProcess
  let agent: AgentProcess['agent']
  beforeEach(async () => {
    namespace = await makeNetworkNamespace(
      `eth0 address ${ETH0} type veth peer name far0`,
      `eth1 address ${ETH1} type veth peer name far1`,
    )
    for (const name of ['lo', 'far0', 'far1']) namespace.ip(`link set ${name} up`)
    started = await startAgent({ network: namespace })
    agent = started.agent
  })
  afterEach(async () => {
    await started.stop()
    await namespace.close()
  })

  /** Waits for the link-local addresses and routes that the kernel itself adds to both ends of eth0. */
  async function linkLocalAddresses(): Promise<void> {
    const routed = () =>
      namespace
        .show<readonly ShownRoute[]>('-6 route')
        .filter(({ dst }) => dst === 'fe80::/64')
        .map(({ dev }) => dev)
        .toSorted()
    await expect.poll(routed).toEqual(['eth0', 'far0'])
  }

  describe('UpdateInterface', () => {
    it('configures a link as requested, and returns the request', async () => {
      const wanted = {
        ...{ device: 'tap0', name: 'net0', hwAddr: ETH0, mtu: 1400n, rawFlags: 0x80, type: 'veth' },
        IPAddresses: [ip('10.0.0.2', 24), ip('fd00::2', 64)],
      }
      await expect(agent.updateInterface({ interface: wanted })).resolves.toMatchObject(wanted)
      expect(link('net0')).toMatchObject({
        ...{ mtu: 1400, address: ETH0, flags: expect.arrayContaining(['UP', 'NOARP']) },
        addr_info: expect.arrayContaining([
          expect.objectContaining({ local: '10.0.0.2', prefixlen: 24, broadcast: '10.0.0.255' }),
          expect.objectContaining({ local: 'fd00::2', prefixlen: 64, nodad: true }),
        ]),
      })
    })

    it('is reported as an event, and its source even after a restart of the agent', async () => {
      const wanted = { name: 'eth0', hwAddr: ETH0, mtu: 1400n, IPAddresses: [ip('10.0.0.2', 24)] }
      await agent.updateInterface({ interface: wanted })
      const { introspection } = started
      const { events } = await introspection.getEvents({})
      const changed = events.flatMap(({ networkChanged }) => networkChanged?.settings ?? [])
      expect(changed).toEqual(
        expect.arrayContaining([
          expect.objectContaining({ kind: 'interface', subject: 'eth0', source: 'rpc' }),
        ]),
      )
      process.kill(started.agentPid(), 'SIGKILL')
      const { interfaces } = await introspection.getNetwork({})
      const sources = Object.fromEntries(interfaces.map(({ name, source }) => [name, source]))
      expect(sources).toMatchObject({ eth0: 'rpc', eth1: 'kernel' })
      const eth0 = interfaces.find(({ name }) => name === 'eth0')
      expect(eth0?.addresses).toContainEqual(
        expect.objectContaining({ address: '10.0.0.2/24', source: 'rpc' }),
      )
    })

    it('changes nothing, not even for a moment, when it is repeated', async () => {
      const request = {
        interface: {
          name: 'eth0',
          hwAddr: ETH0,
          mtu: 1400n,
          IPAddresses: [ip('10.0.0.2', 24), ip('fd00::2', 64)],
        },
      }
      await agent.updateInterface(request)
      const before = { ...everything(), changes: carrierChanges('eth0') }
      await agent.updateInterface(request)
      expect({ ...everything(), changes: carrierChanges('eth0') }).toEqual(before)
    })

    it('swaps the names of two links that are up, and each keeps addresses and routes', async () => {
      await agent.updateInterface({
        interface: { name: 'eth0', hwAddr: ETH0, IPAddresses: [ip('10.0.0.2', 24), ip('fd00::2', 64)] },
      })
      await agent.updateInterface({
        interface: { name: 'eth1', hwAddr: ETH1, IPAddresses: [ip('10.1.0.2', 24), ip('fd01::2', 64)] },
      })
      await agent.updateRoutes({
        routes: {
          Routes: [
            { dest: '', gateway: '10.1.0.1', device: 'eth1' },
            { ...V6, dest: '', gateway: 'fd00::1', device: 'eth0' },
          ],
        },
      })
      await Promise.all([
        agent.updateInterface({ interface: { name: 'eth1', hwAddr: ETH0 } }),
        agent.updateInterface({ interface: { name: 'eth0', hwAddr: ETH1 } }),
      ])
      expect(addressesOf('eth1')).toEqual(['10.0.0.2/24', 'fd00::2/64'])
      expect(addressesOf('eth0')).toEqual(['10.1.0.2/24', 'fd01::2/64'])
      expect(link('eth0')).toMatchObject({ address: ETH1, flags: expect.arrayContaining(['UP']) })
      expect(routes()).toContainEqual(
        expect.objectContaining({ dst: 'default', gateway: '10.1.0.1', dev: 'eth0' }),
      )
      expect(routes('-6')).toContainEqual(
        expect.objectContaining({ dst: 'default', gateway: 'fd00::1', dev: 'eth1' }),
      )
    })

    it('restores the former state when the kernel refuses a part', async () => {
      await agent.updateInterface({ interface: { name: 'eth1', hwAddr: ETH1 } })
      await agent.updateInterface({
        interface: { name: 'eth0', hwAddr: ETH0, IPAddresses: [ip('10.0.0.2', 24), ip('fd00::2', 64)] },
      })
      const before = everything()
      const tooSmall = { name: 'eth1', hwAddr: ETH0, mtu: 7n, IPAddresses: [ip('10.0.5.2', 24)] }
      await expect(agent.updateInterface({ interface: tooSmall })).rejects.toMatchObject({
        code: 'INTERNAL',
        message: expect.stringMatching(/mtu=7.*: EINVAL \(mtu less than device minimum\)/),
      })
      expect(everything()).toEqual(before)
      const noAddress = { name: 'eth1', hwAddr: ETH0, IPAddresses: [ip('10.0.5.2', 24), ip('ff02::1', 64)] }
      await expect(agent.updateInterface({ interface: noAddress })).rejects.toMatchObject({
        code: 'INTERNAL',
        message: expect.stringContaining('ff02::1'),
      })
      expect(everything()).toEqual(before)
    })

    it.each([
      [
        'a link that is not there',
        { name: 'eth7', hwAddr: '02:00:00:00:00:77' },
        'INTERNAL',
        'Link not found (Address: 02:00:00:00:00:77)',
      ],
      [
        'a prefix out of range',
        { name: 'eth0', IPAddresses: [ip('10.0.0.2', 33)] },
        'INVALID_ARGUMENT',
        'IPAddresses[0].mask',
      ],
      ['a name with a slash', { name: 'a/b', hwAddr: ETH0 }, 'INVALID_ARGUMENT', 'interface.name'],
      ['no interface', undefined, 'INVALID_ARGUMENT', 'empty update interface request'],
    ])('refuses %s', async (_what, wanted, code, text) => {
      await expect(agent.updateInterface({ interface: wanted })).rejects.toMatchObject({
        code,
        message: expect.stringContaining(text),
      })
    })
  })

  describe('UpdateRoutes', () => {
    beforeEach(async () => {
      await agent.updateInterface({
        interface: { name: 'eth0', hwAddr: ETH0, IPAddresses: [ip('10.0.0.2', 24), ip('fd00::2', 64)] },
      })
      await linkLocalAddresses()
    })

    it('adds routes of both families in the order that they need', async () => {
      const wanted = [
        { device: 'eth0', dest: '', gateway: '169.254.1.1', source: '10.0.0.2', mtu: 1300 },
        { device: 'eth0', dest: '169.254.1.1/32', scope: 253 },
        { device: 'eth0', dest: '192.168.157.204/20', gateway: '172.16.9.9', flags: ONLINK },
        { ...V6, device: 'eth0', dest: '', gateway: 'fd09::1', source: 'fd00::2', mtu: 1290 },
        { ...V6, device: 'eth0', dest: 'fd09::1' },
        { ...V6, device: 'eth0', dest: 'fd10::9/32', gateway: 'fe80::9', flags: ONLINK },
      ]
      const answer = await agent.updateRoutes({ routes: { Routes: wanted } })
      expect(routes()).toEqual(
        expect.arrayContaining([
          expect.objectContaining({ dst: '169.254.1.1', dev: 'eth0', scope: 'link', protocol: 'boot' }),
          expect.objectContaining({
            dst: 'default',
            gateway: '169.254.1.1',
            prefsrc: '10.0.0.2',
            metrics: [{ mtu: 1300 }],
          }),
          expect.objectContaining({ dst: '192.168.144.0/20', gateway: '172.16.9.9', flags: ['onlink'] }),
        ]),
      )
      expect(routes('-6')).toEqual(
        expect.arrayContaining([
          expect.objectContaining({ dst: 'fd09::1', dev: 'eth0' }),
          expect.objectContaining({
            dst: 'default',
            gateway: 'fd09::1',
            prefsrc: 'fd00::2',
            metrics: [{ mtu: 1290 }],
          }),
          expect.objectContaining({ dst: 'fd10::/32', gateway: 'fe80::9', flags: ['onlink'] }),
        ]),
      )
      expect(answer).toEqual(await agent.listRoutes({}))
      const before = everything()
      await agent.updateRoutes({ routes: { Routes: wanted } })
      expect(everything()).toEqual(before)
    })

    it('keeps the routes of the kernel and of others', async () => {
      namespace.ip('route add 10.99.0.0/16 via 10.0.0.77')
      const before = routes()
      await agent.updateRoutes({ routes: { Routes: [{ device: 'eth0', dest: '10.0.0.0/24', scope: 253 }] } })
      expect(routes()).toEqual(before)
    })

    it('has one route of its own before one of the kernel, however often it changes', async () => {
      const dest = '10.0.0.0/24'
      for (const gateway of ['10.0.0.1', '10.0.0.3', '10.0.0.9'])
        await agent.updateRoutes({ routes: { Routes: [{ device: 'eth0', dest, gateway }] } })
      const same = routes().filter(({ dst }) => dst === dest)
      expect(same.map(({ gateway, protocol }) => [gateway, protocol])).toEqual([
        ['10.0.0.9', 'boot'],
        [undefined, 'kernel'],
      ])
    })

    it('removes what it has added when the kernel refuses one', async () => {
      await agent.updateRoutes({
        routes: { Routes: [{ device: 'eth0', dest: '10.7.0.0/16', gateway: '10.0.0.1' }] },
      })
      const before = everything()
      const Routes = [
        { device: 'eth0', dest: '10.7.0.0/16', gateway: '10.0.0.9' },
        { device: 'eth0', dest: '10.8.0.0/16' },
        { ...V6, device: 'eth0', dest: 'fd08::/32', gateway: 'fd00::1' },
        { device: 'eth0', dest: '10.9.0.0/16', gateway: '192.168.1.1' },
      ]
      await expect(agent.updateRoutes({ routes: { Routes } })).rejects.toMatchObject({
        code: 'INTERNAL',
        message: expect.stringMatching(
          /^Failed to add IP v4 route: .*10\.9\.0\.0.*ENETUNREACH \(Nexthop has invalid gateway\)$/,
        ),
      })
      expect(everything()).toEqual(before)
    })

    it('adds 500 routes, and recognises each of them the second time', async () => {
      const Routes = Array.from({ length: 500 }, (_, number) => ({
        ...{ device: 'eth0', gateway: '10.0.0.1' },
        dest: `10.${100 + (number >> 8)}.${number & 255}.0/24`,
      }))
      const { Routes: answer } = await agent.updateRoutes({ routes: { Routes } })
      expect(answer.filter(({ gateway }) => gateway === '10.0.0.1')).toHaveLength(500)
      expect(routes().filter(({ gateway }) => gateway === '10.0.0.1')).toHaveLength(500)
      const before = routes()
      await agent.updateRoutes({ routes: { Routes } })
      expect(routes()).toEqual(before)
    })

    it.each([
      [
        'mixed families',
        { device: 'eth0', dest: '10.0.0.0/8', gateway: 'fd00::1' },
        'INVALID_ARGUMENT',
        'routes[0].gateway',
      ],
      [
        'a prefix out of range',
        { device: 'eth0', dest: '10.0.0.0/33' },
        'INVALID_ARGUMENT',
        'routes[0].dest',
      ],
      [
        'an unknown device',
        { device: 'eth9', dest: '10.0.0.0/8' },
        'INTERNAL',
        'Link not found (Name: eth9)',
      ],
    ])('refuses %s', async (_what, route, code, text) => {
      const before = everything()
      await expect(agent.updateRoutes({ routes: { Routes: [route] } })).rejects.toMatchObject({
        code,
        message: expect.stringContaining(text),
      })
      expect(everything()).toEqual(before)
    })

    it('refuses a request without routes', async () => {
      await expect(agent.updateRoutes({})).rejects.toMatchObject({ code: 'INVALID_ARGUMENT' })
    })
  })

  it('ListInterfaces returns what `ip` shows', async () => {
    await agent.updateInterface({
      interface: { name: 'eth0', hwAddr: ETH0, IPAddresses: [ip('10.0.0.2', 24), ip('fd00::2', 64)] },
    })
    const returned = async () =>
      (await agent.listInterfaces({})).Interfaces.map(({ name, hwAddr, mtu, IPAddresses }) => ({
        name,
        hwAddr: hwAddr.toLowerCase(),
        mtu: Number(mtu),
        addresses: IPAddresses.map(({ address, mask, family }) => `${family} ${address}/${mask}`).toSorted(),
      }))
    const shown = () =>
      namespace.show<readonly ShownLink[]>('address').map((each) => ({
        name: each.ifname,
        hwAddr: each.address,
        mtu: each.mtu,
        addresses: each.addr_info
          .map(({ local, prefixlen }) => `${local.includes(':') ? 1 : 0} ${local}/${prefixlen}`)
          .toSorted(),
      }))
    await linkLocalAddresses()
    expect(await returned()).toEqual(shown())
  })

  describe('AddARPNeighbors', () => {
    beforeEach(async () => {
      await agent.updateInterface({
        interface: { name: 'eth0', hwAddr: ETH0, IPAddresses: [ip('10.0.0.2', 16)] },
      })
    })

    it('adds entries of both families', async () => {
      const entry = { device: 'eth0', lladdr: '02:00:00:00:00:AA' }
      await agent.addARPNeighbors({
        neighbors: {
          ARPNeighbors: [
            { ...entry, toIPAddress: ip('10.0.0.9', 32) },
            { ...entry, toIPAddress: ip('fd00::9', 128), state: 0x40 },
          ],
        },
      })
      expect(namespace.show('neigh show nud permanent nud noarp dev eth0')).toEqual(
        expect.arrayContaining([
          expect.objectContaining({ dst: '10.0.0.9', lladdr: '02:00:00:00:00:aa', state: ['PERMANENT'] }),
          expect.objectContaining({ dst: 'fd00::9', state: ['NOARP'] }),
        ]),
      )
    })

    it('adds 10,000 entries, and removes all of them when one cannot be added', async () => {
      const ARPNeighbors = Array.from({ length: 10_000 }, (_, number) => ({
        ...{ device: 'eth0', lladdr: '02:00:00:00:00:aa' },
        toIPAddress: ip(`10.0.${1 + (number >> 8)}.${number & 255}`, 32),
      }))
      const wrong = { device: 'eth0', lladdr: '02:00', toIPAddress: ip('10.0.0.9', 32) }
      await expect(
        agent.addARPNeighbors({ neighbors: { ARPNeighbors: [...ARPNeighbors, wrong] } }),
      ).rejects.toMatchObject({ code: 'INTERNAL', message: expect.stringContaining('10.0.0.9') })
      expect(permanentNeighbors()).toBe(0)
      await agent.addARPNeighbors({ neighbors: { ARPNeighbors } })
      expect(permanentNeighbors()).toBe(10_000)
    })

    it.each([
      [
        'an unknown device',
        { device: 'eth9', toIPAddress: ip('10.0.0.9', 32) },
        'INTERNAL',
        'Link not found (Name: eth9)',
      ],
      ['no address', { device: 'eth0' }, 'INVALID_ARGUMENT', 'neighbors[0].toIPAddress'],
    ])('refuses %s', async (_what, neighbor, code, text) => {
      await expect(agent.addARPNeighbors({ neighbors: { ARPNeighbors: [neighbor] } })).rejects.toMatchObject({
        code,
        message: expect.stringContaining(text),
      })
    })
  })

  it('log what was set, and its source', async () => {
    await agent.updateInterface({
      interface: { name: 'eth0', hwAddr: ETH0, IPAddresses: [ip('10.0.0.2', 24)] },
    })
    const line = await started.logged({ msg: 'network set', source: 'rpc' })
    expect(line).toMatchObject({ count: '2', settings: expect.stringContaining('address 10.0.0.2/24: eth0') })
  })

  function ip(address: string, prefixLength: number) {
    return { family: address.includes(':') ? 1 : 0, address, mask: String(prefixLength) } as const
  }

  function link(name: string): ShownLink | undefined {
    return namespace.show<readonly ShownLink[]>(`address show ${name}`)[0]
  }

  function carrierChanges(name: string): unknown {
    interface Counted {
      readonly stats64: { readonly tx: { readonly carrier_changes: number } }
    }
    const [shown] = namespace.show<readonly Counted[]>(`-s -s link show ${name}`)
    expect(shown?.stats64.tx.carrier_changes).toBeTypeOf('number')
    return shown?.stats64.tx.carrier_changes
  }

  function addressesOf(name: string): readonly string[] {
    const shown = link(name)?.addr_info ?? []
    return shown
      .filter(({ scope }) => scope === 'global')
      .map(({ local, prefixlen }) => `${local}/${prefixlen}`)
      .toSorted()
  }

  function routes(family: '-4' | '-6' = '-4'): readonly ShownRoute[] {
    return namespace.show(`${family} route show`)
  }

  function permanentNeighbors(): number {
    return namespace.show<readonly unknown[]>('neigh show nud permanent').length
  }

  /** Links, addresses and routes as `ip` shows them, without the values that change by themselves after the carrier. */
  function everything() {
    const lines = (words: string) => namespace.ip(words).split('\n').toSorted()
    return {
      links: namespace.show<readonly ShownLink[]>('link').map(({ ifname, address, mtu, flags }) => ({
        ...{ ifname, address, mtu },
        flags: flags.filter((flag) => ['UP', 'NOARP'].includes(flag)),
      })),
      addresses: lines('-oneline address').filter((line) => !line.includes('scope link')),
      routes: [...lines('route'), ...lines('-6 route')]
        .filter((line) => !line.startsWith('fe80::/64'))
        .map((line) => line.replace(' linkdown', '')),
    }
  }
})
