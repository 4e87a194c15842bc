import { execFileSync } from 'node:child_process'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { buildAddon } from '../../../../src/build/native.ts'
import type { Link, LinkAddress, Neighbor, Network, Route } from '../../../../src/os/network/network.ts'
import { makeNetworkNamespace, type NetworkNamespace } from '../../../support/host/network-namespace.ts'

type Call = readonly [keyof Network, ...unknown[]]

describe('linuxNetwork', () => {
  let namespace: NetworkNamespace
  beforeEach(async () => {
    namespace = await makeNetworkNamespace('eth0 address 02:00:00:00:00:01 type veth peer name far')
    namespace.ip('link set far up')
  })
  afterEach(() => namespace.close())

  it('lists links as `ip` shows them', async () => {
    namespace.run('sysctl', '-qw', 'net.ipv6.conf.far.disable_ipv6=1')
    const [links] = await calls(['links'])
    const shown =
      namespace.show<
        readonly { ifindex: number; ifname: string; address: string; mtu: number; flags: string[] }[]
      >('link')
    expect(links).toEqual(
      shown.map(({ ifindex, ifname, address, mtu, flags }) => ({
        index: ifindex,
        name: ifname,
        hardwareAddress: address,
        mtu,
        up: flags.includes('UP'),
        arp: !flags.includes('NOARP'),
        loopback: flags.includes('LOOPBACK'),
        ipv6: ifname !== 'far',
        type: ifname === 'lo' ? 772 : 1,
        parentDevice: '',
      })),
    )
  })

  it('changes all of a link in one message', async () => {
    const { index } = await link('eth0')
    const change = { name: 'net0', mtu: 1400, arp: false, up: true, hardwareAddress: '02:00:00:00:00:99' }
    expect(await calls(['setLink', index, change])).toEqual([null])
    expect(namespace.show('link show net0')).toMatchObject([
      { mtu: 1400, address: '02:00:00:00:00:99', flags: expect.arrayContaining(['NOARP', 'UP']) },
    ])
    await calls(['setLink', index, { up: false, arp: true }])
    expect(await link('net0')).toMatchObject({ up: false, arp: true, mtu: 1400 })
  })

  it('adds, replaces and removes addresses of both families, and those of a point-to-point link', async () => {
    const linkIndex = (await link('eth0')).index
    const plain = { linkIndex, scope: 0, flags: 0 }
    const addresses: LinkAddress[] = [
      { ...plain, family: 'ipv4', address: '10.0.0.2', prefixLength: 24, broadcast: '10.0.0.255' },
      { ...plain, family: 'ipv4', address: '10.1.0.2', peer: '10.1.0.1', prefixLength: 32 },
      { ...plain, family: 'ipv6', address: 'fd00::2', prefixLength: 64, flags: 2 },
      { ...plain, family: 'ipv6', address: 'fd01::2', peer: 'fd01::1', prefixLength: 128, flags: 2 },
    ]
    const made = await calls(
      ...addresses.map((address) => ['addAddress', address] as const),
      ...addresses.map((address) => ['replaceAddress', address] as const),
      ['addresses'],
    )
    expect(made.slice(0, 8)).toEqual(Array(8).fill(null))
    const permanent = addresses.map((address) => ({ ...address, flags: address.flags | 0x80 }))
    expect(made[8]).toEqual(expect.arrayContaining(permanent))
    expect(shownAddresses().toSorted()).toEqual([
      '10.0.0.2/24 brd 10.0.0.255',
      '10.1.0.2 peer 10.1.0.1/32',
      'fd00::2/64 nodad',
      'fd01::2 peer fd01::1/128 nodad',
    ])
    await calls(...addresses.map((address) => ['removeAddress', address] as const))
    expect(shownAddresses()).toEqual([])
  })

  it('adds routes of both families with all that they can have, and finds them again', async () => {
    const linkIndex = await connected()
    const plain = { linkIndex, scope: 0, protocol: 3, flags: 0 }
    const wanted: Route[] = [
      { ...plain, family: 'ipv4', destination: { address: '10.2.0.0', prefixLength: 16 }, scope: 253 },
      {
        ...plain,
        family: 'ipv4',
        destination: { address: '0.0.0.0', prefixLength: 0 },
        gateway: '10.0.0.1',
        preferredSource: '10.0.0.2',
        priority: 7,
        mtu: 1300,
      },
      {
        ...plain,
        family: 'ipv4',
        destination: { address: '10.3.0.0', prefixLength: 16 },
        gateway: '192.168.9.9',
        flags: 4,
      },
      {
        ...plain,
        family: 'ipv6',
        destination: { address: '::', prefixLength: 0 },
        gateway: 'fd00::1',
        preferredSource: 'fd00::2',
        priority: 1024,
        mtu: 1290,
      },
      {
        ...plain,
        family: 'ipv6',
        destination: { address: 'fd05::', prefixLength: 32 },
        gateway: 'fe80::9',
        flags: 4,
        priority: 9,
      },
    ]
    const made = await calls(...wanted.map((route) => ['addRoute', route] as const), ['routes'])
    expect(made.slice(0, 5)).toEqual(Array(5).fill(null))
    expect(made[5]).toEqual(expect.arrayContaining(wanted))
    expect(namespace.ip('route show')).toMatch(/default via 10.0.0.1 dev eth0 src 10.0.0.2 metric 7 mtu 1300/)
    expect(namespace.ip('route show')).toMatch(/10.3.0.0\/16 via 192.168.9.9 dev eth0 onlink/)
    expect(namespace.ip('-6 route show')).toMatch(
      /default via fd00::1 dev eth0 src fd00::2 metric 1024 mtu 1290/,
    )
    const removed = await calls(...wanted.map((route) => ['removeRoute', route] as const), ['routes'])
    expect(removed.slice(0, 5)).toEqual(Array(5).fill(null))
    expect((removed[5] as Route[]).every(({ protocol }) => protocol === 2)).toBe(true)
  })

  it('replaces a route, or puts one before it', async () => {
    const linkIndex = await connected()
    const destination = { address: '10.0.0.0', prefixLength: 24 }
    const route = { linkIndex, scope: 253, protocol: 3, flags: 0, family: 'ipv4', destination }
    const [exclusive, first] = await calls(['addRoute', route], ['addRoute', route, 'first'])
    expect(exclusive).toMatchObject({ errno: 'EEXIST' })
    expect(first).toBeNull()
    expect(namespace.ip('route show 10.0.0.0/24').split('\n')[0]).not.toContain('proto kernel')
    expect(namespace.ip('route show 10.0.0.0/24')).toContain('proto kernel')
    await calls(['replaceRoute', { ...route, mtu: 1280 }])
    expect(namespace.ip('route show 10.0.0.0/24')).toContain('mtu 1280')
  })

  it('adds and removes neighbours of both families', async () => {
    const linkIndex = await connected()
    const entry = { linkIndex, hardwareAddress: '02:00:00:00:00:aa', state: 0x80, flags: 0 }
    const wanted: Neighbor[] = [
      { ...entry, family: 'ipv4', address: '10.0.0.9' },
      { ...entry, family: 'ipv6', address: 'fd00::9' },
    ]
    const made = await calls(...wanted.map((neighbor) => ['replaceNeighbor', neighbor] as const), [
      'neighbors',
    ])
    expect(made.slice(0, 2)).toEqual([null, null])
    expect(made[2]).toEqual(expect.arrayContaining(wanted))
    expect(namespace.show('neigh show nud permanent')).toMatchObject([
      { dst: '10.0.0.9', dev: 'eth0', lladdr: '02:00:00:00:00:aa', state: ['PERMANENT'] },
      { dst: 'fd00::9', dev: 'eth0', lladdr: '02:00:00:00:00:aa', state: ['PERMANENT'] },
    ])
    await calls(...wanted.map((neighbor) => ['removeNeighbor', neighbor] as const))
    expect(namespace.show('neigh show nud permanent')).toEqual([])
  })

  it('names the operation, its object and the kernel’s error', async () => {
    const linkIndex = await connected()
    const route = { linkIndex, scope: 0, protocol: 3, flags: 0, family: 'ipv4' }
    const destination = { address: '10.7.0.0', prefixLength: 16 }
    const failures = await calls(
      ['setLink', 99, { up: true }],
      ['setLink', linkIndex, { name: 'far' }],
      ['setLink', linkIndex, { mtu: 7 }],
      ['addRoute', { ...route, destination, gateway: '192.168.1.1' }],
      ['addRoute', { ...route, destination: { address: '10.7.0.1', prefixLength: 16 } }],
      ['removeRoute', { ...route, destination }],
      [
        'removeAddress',
        { linkIndex, family: 'ipv4', address: '10.9.9.9', prefixLength: 8, scope: 0, flags: 0 },
      ],
      ['addRoute', { ...route, destination, gateway: 'fd00::1' }],
      ['links'],
    )
    expect(failures.slice(0, 8)).toEqual([
      { message: 'set link 99 up=true: ENODEV', errno: 'ENODEV' },
      { message: expect.stringContaining('name=far: EEXIST'), errno: 'EEXIST' },
      { message: expect.stringMatching(/mtu=7: EINVAL \(mtu less than device minimum\)/), errno: 'EINVAL' },
      {
        message: `add route 10.7.0.0/16 via 192.168.1.1 on link ${linkIndex}: ENETUNREACH (Nexthop has invalid gateway)`,
        errno: 'ENETUNREACH',
      },
      { message: expect.stringContaining('10.7.0.1/16'), errno: 'EINVAL' },
      { message: expect.stringContaining('10.7.0.0/16'), errno: 'ESRCH' },
      { message: expect.stringContaining('10.9.9.9/8'), errno: 'EADDRNOTAVAIL' },
      { message: "encode ipv4 address 'fd00::1': EINVAL", errno: 'EINVAL' },
    ])
    expect(failures[8]).toHaveLength(3)
  })

  it('lists more routes than fit into one datagram', async () => {
    const linkIndex = await connected()
    const routes = Array.from({ length: 2000 }, (_, number) => ({
      ...{ linkIndex, scope: 253, protocol: 3, flags: 0, family: 'ipv4' },
      destination: { address: `10.${100 + (number >> 8)}.${number & 255}.0`, prefixLength: 24 },
    }))
    const made = await calls(...routes.map((route) => ['addRoute', route] as const), ['routes'])
    expect(made.slice(0, 2000).every((answer) => answer === null)).toBe(true)
    const listed = (made[2000] as readonly Route[]).map(({ destination }) => destination.address)
    expect(
      routes.map(({ destination }) => destination.address).filter((address) => !listed.includes(address)),
    ).toEqual([])
  })

  async function calls(...wanted: readonly Call[]): Promise<readonly unknown[]> {
    const argv = [...namespace.enter, process.execPath, join(import.meta.dirname, 'network-calls.ts')]
    const [program = '', ...rest] = [...argv, await buildAddon()]
    const input = JSON.stringify(wanted)
    return JSON.parse(execFileSync(program, rest, { input, encoding: 'utf8', maxBuffer: 2 ** 26 }))
  }

  async function link(name: string): Promise<Link> {
    const [links] = await calls(['links'])
    const found = (links as readonly Link[]).find((candidate) => candidate.name === name)
    if (found === undefined) throw new Error(`there is no ${name}`)
    return found
  }

  /** Sets `eth0` up with 10.0.0.2/24 and fd00::2/64 and returns its index. */
  async function connected(): Promise<number> {
    namespace.ip('link set eth0 up')
    namespace.ip('address add 10.0.0.2/24 dev eth0')
    namespace.ip('address add fd00::2/64 dev eth0 nodad')
    return (await link('eth0')).index
  }

  function shownAddresses(): readonly string[] {
    interface Shown {
      readonly local: string
      readonly address?: string
      readonly prefixlen: number
      readonly broadcast?: string
      readonly nodad?: boolean
      readonly scope: string
    }
    const [{ addr_info: shown = [] } = {}] =
      namespace.show<readonly { addr_info: Shown[] }[]>('address show eth0')
    return shown
      .filter(({ scope }) => scope === 'global')
      .map(({ local, address, prefixlen, broadcast, nodad }) =>
        [
          `${local}${address === undefined ? '' : ` peer ${address}`}/${prefixlen}`,
          ...(broadcast === undefined ? [] : [`brd ${broadcast}`]),
          ...(nodad === true ? ['nodad'] : []),
        ].join(' '),
      )
  }
})
