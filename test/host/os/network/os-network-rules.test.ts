import { execFileSync } from 'node:child_process'
import { join } from 'node:path'
import { afterEach, describe, expect, it } from 'vitest'
import { errnoOf } from '../../../../src/base/errors.ts'
import { buildAddon } from '../../../../src/build/native.ts'
import type { Link, LinkAddress, Neighbor, Network, Route } from '../../../../src/os/network/network.ts'
import { FakeNetwork } from '../../../support/fakes/fake-network.ts'
import { makeNetworkNamespace } from '../../../support/host/network-namespace.ts'

type Call = readonly [keyof Network, ...unknown[]]

type Caller = (...calls: readonly Call[]) => Promise<readonly unknown[]>

let close = async () => {}
afterEach(() => close())

async function onLinux(): Promise<Caller> {
  const namespace = await makeNetworkNamespace('eth0 address 02:00:00:00:00:02 type veth peer name far')
  close = namespace.close
  namespace.ip('link set far up')
  // The link gets no IPv6 address of its own.
  namespace.run('sysctl', '-qw', 'net.ipv6.conf.eth0.addr_gen_mode=1')
  const [program = '', ...argv] = [...namespace.enter, process.execPath]
  const args = [...argv, join(import.meta.dirname, 'network-calls.ts'), await buildAddon()]
  return async (...calls) => {
    const input = JSON.stringify(calls)
    const answers = JSON.parse(execFileSync(program, args, { input, encoding: 'utf8' })) as unknown[]
    return answers.map((answer) => (isFailure(answer) ? answer.errno : answer))
  }
}

async function fake(): Promise<Caller> {
  const network = new FakeNetwork()
  close = async () => {}
  network.addLink({ name: 'far', up: true, hardwareAddress: '02:00:00:00:00:09' })
  network.addLink({ name: 'eth0', hardwareAddress: '02:00:00:00:00:02' })
  return async (...calls) =>
    calls.map(([name, ...args]) => {
      try {
        return Reflect.apply(network[name], network, args) ?? null
      } catch (error) {
        return errnoOf(error)
      }
    })
}

function isFailure(answer: unknown): answer is { readonly errno: string } {
  return typeof answer === 'object' && answer !== null && 'errno' in answer
}

const destination = (text: string) => {
  const [address = '', length] = text.split('/')
  return { address, prefixLength: Number(length) }
}

describe.each([
  ['linuxNetwork', onLinux],
  ['FakeNetwork', fake],
])('%s', (_name, build) => {
  let call: Caller
  let linkIndex: number

  async function start(): Promise<void> {
    call = await build()
    const [links] = (await call(['links'])) as [readonly Link[]]
    linkIndex = links.find(({ name }) => name === 'eth0')?.index ?? 0
    expect(linkIndex).toBeGreaterThan(1)
  }

  const address = (text: string, changes: Partial<LinkAddress> = {}): LinkAddress => {
    const { address, prefixLength } = destination(text)
    const family = text.includes(':') ? 'ipv6' : 'ipv4'
    return {
      linkIndex,
      family,
      address,
      prefixLength,
      scope: 0,
      flags: family === 'ipv6' ? 2 : 0,
      ...changes,
    }
  }
  const route = (text: string, changes: Partial<Route> = {}): Route => {
    const family = text.includes(':') ? 'ipv6' : 'ipv4'
    return { linkIndex, family, destination: destination(text), scope: 0, protocol: 3, flags: 0, ...changes }
  }
  const neighbor = (ip: string, hardwareAddress = '02:00:00:00:00:aa'): Neighbor => {
    const family = ip.includes(':') ? 'ipv6' : 'ipv4'
    return { linkIndex, family, address: ip, hardwareAddress, state: 0x80, flags: 0 }
  }

  async function routes(): Promise<readonly string[]> {
    const [all] = (await call(['routes'])) as [readonly Route[]]
    return all
      .filter((each) => each.linkIndex === linkIndex && !/^(fe80|ff00)/.test(each.destination.address))
      .map(({ destination: { address, prefixLength }, gateway, priority, protocol }) =>
        [
          `${address}/${prefixLength}`,
          ...(gateway === undefined ? [] : [`via ${gateway}`]),
          ...(priority === undefined ? [] : [`metric ${priority}`]),
          ...(protocol === 2 ? ['of the kernel'] : []),
        ].join(' '),
      )
  }

  async function addresses(): Promise<readonly string[]> {
    const [all] = (await call(['addresses'])) as [readonly LinkAddress[]]
    return all
      .filter((each) => each.linkIndex === linkIndex && !each.address.startsWith('fe80'))
      .map((each) => `${each.address}/${each.prefixLength} flags ${each.flags}`)
  }

  it('adds routes with addresses while a link is up, and loses them as it goes down', async () => {
    await start()
    const both = [address('10.0.0.2/24'), address('fd00::2/64')]
    expect(await call(...both.map((each) => ['addAddress', each] as const))).toEqual([null, null])
    expect(await routes()).toEqual([])
    expect(await call(['setLink', linkIndex, { up: true }])).toEqual([null])
    const made = ['10.0.0.0/24 of the kernel', 'fd00::/64 metric 256 of the kernel']
    expect(await routes()).toEqual(made)
    const more = [route('10.2.0.0/16', { gateway: '10.0.0.1' }), route('fd05::/32', { gateway: 'fd00::1' })]
    expect(await call(...more.map((each) => ['addRoute', each] as const))).toEqual([null, null])
    expect((await routes()).toSorted()).toEqual(
      [...made, '10.2.0.0/16 via 10.0.0.1', 'fd05::/32 via fd00::1 metric 1024'].toSorted(),
    )
    await call(['replaceNeighbor', neighbor('10.0.0.9')], ['setLink', linkIndex, { up: false }])
    expect([await routes(), await addresses()]).toEqual([[], ['10.0.0.2/24 flags 128']])
    const [neighbors] = (await call(['neighbors'])) as [readonly Neighbor[]]
    expect(neighbors.filter((each) => each.linkIndex === linkIndex && each.state === 0x80)).toEqual([])
  })

  it('identifies an address by itself and its prefix length', async () => {
    await start()
    const answers = await call(
      ['addAddress', address('10.0.0.2/24')],
      ['addAddress', address('10.0.0.2/24')],
      ['replaceAddress', address('10.0.0.2/24')],
      ['addAddress', address('10.0.0.2/16')],
      ['removeAddress', address('10.0.0.2/8')],
      ['removeAddress', address('10.0.0.2/16')],
      ['addAddress', address('10.0.0.3/24', { linkIndex: 99 })],
      ['addAddress', address('10.0.0.3/33')],
    )
    expect(answers).toEqual([null, 'EEXIST', null, null, 'EADDRNOTAVAIL', null, 'ENODEV', 'EINVAL'])
    expect(await addresses()).toEqual(['10.0.0.2/24 flags 128'])
  })

  it('takes a route that can be reached, and one of a destination and priority', async () => {
    await start()
    const far = route('10.7.0.0/16', { gateway: '10.0.0.1' })
    const answers = await call(
      ['addRoute', far],
      ['addRoute', route('10.9.0.0/16', { scope: 253 })],
      ['setLink', linkIndex, { up: true }],
      ['addAddress', address('10.0.0.2/24')],
      ['addAddress', address('fd00::2/64')],
      ['addRoute', far],
      ['addRoute', far],
      ['addRoute', { ...far, priority: 5 }],
      ['addRoute', route('10.8.0.0/16', { gateway: '192.168.1.1' })],
      ['addRoute', route('10.8.0.0/16', { gateway: '192.168.1.1', flags: 4 })],
      ['addRoute', route('fd09::/64', { gateway: 'fd77::1' })],
      ['removeRoute', { ...route('10.0.0.0/24', { scope: 253 }) }],
      ['addRoute', route('10.7.0.1/16')],
      ['addRoute', route('10.9.0.0/16', { linkIndex: 99 })],
      ['removeRoute', route('10.9.0.0/16')],
      ['replaceRoute', { ...far, gateway: '10.0.0.3' }],
      ['removeRoute', { ...far, priority: 5 }],
    )
    expect(answers).toEqual([
      ...['ENETUNREACH', 'ENETDOWN', null, null, null, null, 'EEXIST', null],
      ...['ENETUNREACH', null, 'EHOSTUNREACH', 'ESRCH', 'EINVAL', 'ENODEV', 'ESRCH', null, null],
    ])
    const ipv4 = (await routes()).filter((text) => !text.includes(':'))
    expect(ipv4.toSorted()).toEqual([
      '10.0.0.0/24 of the kernel',
      '10.7.0.0/16 via 10.0.0.3',
      '10.8.0.0/16 via 192.168.1.1',
    ])
  })

  it('puts a route before others, and fails for each of many by itself', async () => {
    await start()
    await call(['setLink', linkIndex, { up: true }], ['addAddress', address('10.0.0.2/24')])
    const [failures] = (await call([
      'putRoutes',
      [
        { route: route('10.0.0.0/24', { scope: 253 }), place: 'first' },
        { route: route('10.8.0.0/16', { gateway: '192.168.1.1' }), place: 'instead' },
        { route: route('10.9.0.0/16', { scope: 253 }), place: 'instead' },
      ],
    ])) as [readonly (object | null | undefined)[]]
    expect(failures.map((failure) => failure !== null && failure !== undefined)).toEqual([false, true, false])
    expect((await routes()).slice(0, 2)).toEqual(['10.0.0.0/24', '10.0.0.0/24 of the kernel'])
    expect(await routes()).toContain('10.9.0.0/16')
  })

  it('changes links and neighbours, and names what is not there', async () => {
    await start()
    const answers = await call(
      ['setLink', 99, { up: true }],
      ['setLink', linkIndex, { name: 'far' }],
      ['setLink', linkIndex, { name: 'a/b' }],
      ['setLink', linkIndex, { mtu: 7 }],
      ['setLink', linkIndex, { name: 'net0', mtu: 1400, arp: false, up: true }],
      ['replaceNeighbor', neighbor('10.0.0.9')],
      ['replaceNeighbor', neighbor('10.0.0.9', '02:00:00:00:00:bb')],
      ['removeNeighbor', neighbor('10.0.0.8')],
      ['replaceNeighbor', { ...neighbor('10.0.0.7'), linkIndex: 99 }],
    )
    const errnos = ['ENODEV', 'EEXIST', 'EINVAL', 'EINVAL', null, null, null, 'ENOENT', 'ENODEV']
    expect(answers).toEqual(errnos)
    const [links, neighbors] = (await call(['links'], ['neighbors'])) as [
      readonly Link[],
      readonly Neighbor[],
    ]
    expect(links.find(({ index }) => index === linkIndex)).toMatchObject({
      name: 'net0',
      mtu: 1400,
      arp: false,
      up: true,
    })
    const permanent = neighbors.filter(({ state }) => state === 0x80)
    expect(permanent).toMatchObject([{ address: '10.0.0.9', hardwareAddress: '02:00:00:00:00:bb' }])
  })
})
