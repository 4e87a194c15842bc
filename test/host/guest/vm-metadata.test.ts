import { execFileSync } from 'node:child_process'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import type { VMMetadata } from '../../../src/gen/vm.ts'
import { makeNetworkNamespace, type NetworkNamespace } from '../../support/host/network-namespace.ts'

const V4 = { ip: '10.0.0.2', peerIp: '10.0.0.1' }
const V6 = { ip: 'fd00::2', peerIp: 'fd00::1' }

describe('configureNetwork on a real link', () => {
  let namespace: NetworkNamespace
  beforeEach(async () => {
    namespace = await makeNetworkNamespace('eth0 type veth peer name far')
    namespace.ip('link set far up')
  })
  afterEach(() => namespace.close())

  it('configures it as `ip` then shows', async () => {
    expect(await apply({ v4: V4, v6: V6 })).toEqual([true])
    expect(addresses()).toEqual(['10.0.0.2 peer 10.0.0.1/32', 'fd00::2 peer fd00::1/128 nodad'])
    expect(defaults()).toEqual(['10.0.0.1 dev eth0 77 onlink', 'fd00::1 dev eth0 77 onlink'])
    const read = [...namespace.enter, 'cat', '/proc/sys/net/ipv6/conf/eth0/accept_ra']
    expect(execFileSync(read[0] ?? '', read.slice(1), { encoding: 'utf8' })).toBe('0\n')
  })

  it('changes nothing the second time, also in another process', async () => {
    await apply({ v4: V4, v6: V6 })
    const before = [...addresses(), ...defaults()]
    expect(await apply({ v4: V4, v6: V6 })).toEqual([false])
    expect([...addresses(), ...defaults()]).toEqual(before)
  })

  it('restores its routes after the link was down', async () => {
    await apply({ v4: V4, v6: V6 })
    namespace.ip('link set eth0 down')
    expect(await apply({ v4: V4, v6: V6 })).toEqual([true])
    expect(defaults()).toEqual(['10.0.0.1 dev eth0 77 onlink', 'fd00::1 dev eth0 77 onlink'])
  })

  it('removes what it configured, and nothing that others did', async () => {
    await apply({ v4: V4, v6: V6 })
    namespace.ip('address add 192.168.7.2/24 dev eth0')
    namespace.ip('-6 route replace default via fd00::1 dev eth0 metric 512')
    expect(await apply({ v4: { ip: '10.0.0.9', peerIp: '10.0.0.8' } }, {})).toEqual([true, true])
    expect(addresses()).toEqual(['192.168.7.2 peer undefined/24'])
    expect(defaults()).toEqual(['fd00::1 dev eth0 boot '])
  })

  async function apply(...configs: readonly Partial<NonNullable<VMMetadata['networkConfig']>>[]) {
    const script = [process.execPath, join(import.meta.dirname, 'apply-metadata.ts')]
    const [program = '', ...rest] = [...namespace.enter, ...script]
    const input = JSON.stringify(configs.map((networkConfig) => ({ name: 'vm1', networkConfig })))
    return JSON.parse(execFileSync(program, rest, { encoding: 'utf8', input }))
  }

  interface ShownAddress {
    readonly local: string
    readonly address?: string
    readonly prefixlen: number
    readonly nodad?: boolean
    readonly scope: string
  }

  function addresses(): readonly string[] {
    const [eth0] =
      namespace.show<readonly { readonly addr_info: readonly ShownAddress[] }[]>('address show dev eth0')
    return (eth0?.addr_info ?? [])
      .filter(({ scope }) => scope === 'global')
      .map(
        ({ local, address, prefixlen, nodad }) =>
          `${local} peer ${address}/${prefixlen}${nodad ? ' nodad' : ''}`,
      )
  }

  function defaults(): readonly string[] {
    type Shown = {
      readonly gateway: string
      readonly dev: string
      readonly protocol: string
      readonly flags: string[]
    }
    return ['-4', '-6']
      .flatMap((family) => namespace.show<readonly Shown[]>(`${family} route show default`))
      .map(({ gateway, dev, protocol, flags }) => `${gateway} dev ${dev} ${protocol} ${flags.join(' ')}`)
  }
})
