import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { IPFamily } from '../../../src/gen/types.ts'
import { specKey } from '../../../src/host/spec/spec-key.ts'
import type { GuestParts } from '../../../src/microvm/run/guest-spec.ts'
import type { Pod } from '../../support/containers/pod.ts'
import { temporaryFolder } from '../../support/temporary-folder.ts'
import { CRUN, cannotBoot, type TestGuest } from '../../support/vm/boot-guest.ts'
import { bootPod, consoleLine } from '../../support/vm/guest-pod.ts'
import { type HostNetwork, makeHostNetwork } from '../../support/vm/host-network.ts'
import { plugNic } from '../../support/vm/hot-plug/hot-plug.ts'
import { metadataItem } from '../../support/vm/metadata-item.ts'

const CARDS = { first: '52:54:00:00:01:01', second: '52:54:00:00:01:02', plugged: '52:54:00:00:01:03' }
const PORT = specKey('hot-plug-port')
const PORT_SLOT = 9

/** The host's ends: point-to-point for the metadata, and plain networks. */
const TAPS = {
  tap0: ['10.0.0.1 peer 10.0.0.2', 'fd00::1 peer fd00::2 nodad'],
  tap1: ['192.168.71.1/24', 'fd71::1/64 nodad'],
  tap2: ['192.168.72.1/24', 'fd72::1/64 nodad'],
}

const BEHIND = ['10.71.77.1', 'fd71:77::1']

describe.skipIf(cannotBoot() !== undefined)('the network of a guest', () => {
  const folder = temporaryFolder()
  let host: HostNetwork
  let guest: TestGuest
  let pod: Pod

  beforeAll(async () => {
    host = await makeHostNetwork(TAPS)
    for (const address of BEHIND) host.namespace.ip(`address add ${address} dev lo`)
    await host.serve(8000, 'hello from the host')
    const append = [CRUN, `agent.metadata_interface=${CARDS.first}`]
    ;({ guest, pod } = await bootPod({
      append,
      extra: machineParts(folder),
      networkNamespace: host.namespace.path,
    }))
  })

  afterAll(async () => {
    await guest?.stop()
    await host?.close()
  })

  async function exchange(
    id: string,
    links: readonly { readonly inGuest: string; readonly onHost: string }[],
  ) {
    for (const { onHost } of links) await host.ping(onHost)
    const asked = links.map(
      ({ inGuest }) => `ping -c 1 -W 20 ${inGuest} >&2 && wget -q -O - http://${literal(inGuest)}:8000/`,
    )
    const ping = { capabilities: ['CAP_NET_RAW'] }
    const answers = await pod.output(`${id}-client`, asked.join(' && '), ping)
    expect(answers).toBe('hello from the host'.repeat(links.length))
    for (const { onHost } of links) {
      expect(await host.get(`http://${literal(onHost)}:8080/`)).toBe('hello from the guest')
    }
  }

  it('is configured as the metadata says when the boot gate opens', async () => {
    await consoleLine(guest, /"msg":"network set".*"source":"metadata".*fd00::2\/128: eth0 peer fd00::1/)
    // A container uses the guest's network, so its server is reachable at every address of the guest.
    const server = await pod.run('server', [
      'sh',
      '-c',
      'mkdir -p /www && printf "hello from the guest" > /www/index.html && httpd -p 8080 -h /www && echo listening && exec sleep 1000000',
    ])
    await server.readUntil('listening')
    await exchange('first', [
      { inGuest: '10.0.0.1', onHost: '10.0.0.2' },
      { inGuest: 'fd00::1', onHost: 'fd00::2' },
    ])
  })

  it('has a second card with the addresses that the host asks for', async () => {
    await pod.agent.updateInterface({ interface: card('eth1', CARDS.second, 71) })
    await exchange('second', [
      { inGuest: '192.168.71.1', onHost: '192.168.71.2' },
      { inGuest: 'fd71::1', onHost: 'fd71::2' },
    ])
  })

  it('takes 500 routes, and uses them', async () => {
    const routes = Array.from({ length: 250 }, (_, number) => [
      { dest: `10.71.${number}.0/24`, gateway: '192.168.71.1', device: 'eth1', family: IPFamily.v4 },
      { dest: `fd71:${number}::/32`, gateway: 'fd71::1', device: 'eth1', family: IPFamily.v6 },
    ]).flat()
    const { Routes } = await pod.agent.updateRoutes({ routes: { Routes: routes } })
    expect(Routes.filter(({ device }) => device === 'eth1').length).toBeGreaterThanOrEqual(500)
    const asked = BEHIND.map((address) => `wget -q -O - http://${literal(address)}:8000/`).join(' && ')
    expect(await pod.output('routes', asked)).toBe('hello from the host'.repeat(2))
  })

  it.each([
    ['IPv4', false, '10.0.0.2', '10.0.0.2:8080'],
    ['IPv6', true, 'fd00::2', '[fd00::2]:8080'],
  ])(
    'leads another port of %s into a container by the rules of the host',
    async (_, isIpv6, address, target) => {
      const rule = `-A PREROUTING -p tcp --dport 8081 -j DNAT --to-destination ${target}`
      await pod.agent.setIPTables({ isIpv6, data: Buffer.from(`*nat\n${rule}\nCOMMIT\n`) })
      expect(await host.get(`http://${literal(address)}:8081/`)).toBe('hello from the guest')
    },
  )

  it('waits for a card that is plugged in while the request is in the guest', async () => {
    const wanted = { ...card('eth2', CARDS.plugged, 72), devicePath: `0${PORT_SLOT}/00` }
    const updating = pod.agent.updateInterface({ interface: wanted })
    const backend = specKey('plugged-tap')
    await plugNic(
      guest.guest.vm.qmp,
      {
        key: specKey('plugged'),
        device: { kind: 'nic', slot: 0, mac: CARDS.plugged, backend },
        backend: { kind: 'tap', interfaceName: 'tap2' },
        bus: PORT,
      },
      guest.guest.vm.gone,
    )
    await updating
    await exchange('plugged', [
      { inGuest: '192.168.72.1', onHost: '192.168.72.2' },
      { inGuest: 'fd72::1', onHost: 'fd72::2' },
    ])
  })

  it('reports its settings, their sources, and the card that was plugged in', async () => {
    const { interfaces, routes } = await guest.introspection.getNetwork({})
    const sourceOf = (wanted: string) => interfaces.find(({ name }) => name === wanted)?.source
    expect(['eth0', 'eth1', 'lo'].map(sourceOf)).toEqual(['metadata', 'rpc', 'kernel'])
    const behind = routes.find(({ destination }) => destination === '10.71.77.0/24')
    expect(behind).toEqual({
      destination: '10.71.77.0/24',
      gateway: '192.168.71.1',
      device: 'eth1',
      source: 'rpc',
    })
    const { events } = await guest.introspection.getEvents({})
    expect(events).toContainEqual(expect.objectContaining({ agentStarted: { restarts: 0 } }))
    const changed = events.flatMap(({ deviceChanged }) => deviceChanged ?? [])
    const added = changed.filter(({ action, subsystem }) => action === 'add' && subsystem === 'net')
    const { devices } = await guest.introspection.listDevices({})
    const plugged = devices.find(({ name }) => name === 'eth2')
    expect(plugged?.driver).toBe('virtio_net')
    expect(added.map(({ path }) => path)).toContainEqual(
      expect.stringMatching(/^\/sys\/devices\/.*\/net\/eth\d$/),
    )
  })

  it('reports its features', async () => {
    const { capabilities } = await guest.introspection.getCapabilities({})
    const missing = capabilities.filter(({ enabled }) => !enabled)
    expect(missing.filter(({ reason }) => reason === '')).toEqual([])
    const has = (name: string) => capabilities.some((one) => one.name === name && one.enabled)
    for (const name of [
      'vsock',
      'cgroup v2',
      'seccomp',
      'file system overlay',
      'file system virtiofs',
      '/usr/bin/crun',
    ])
      expect([name, has(name)]).toEqual([name, true])
  })
})

function machineParts(folder: string): NonNullable<GuestParts['extra']> {
  const { devices, backends } = metadataItem(folder)
  const [tap0, tap1] = [specKey('tap0'), specKey('tap1')]
  return {
    devices: {
      ...devices,
      [specKey('first')]: { kind: 'nic', slot: 6, mac: CARDS.first, backend: tap0 },
      [specKey('second')]: { kind: 'nic', slot: 7, mac: CARDS.second, backend: tap1 },
      [PORT]: { kind: 'root-port', slot: PORT_SLOT },
    },
    backends: {
      ...backends,
      [tap0]: { kind: 'tap', interfaceName: 'tap0' },
      [tap1]: { kind: 'tap', interfaceName: 'tap1' },
    },
  }
}

/** An interface with the second address of 192.168.N.0/24 and fdN::/64. */
function card(name: string, hwAddr: string, network: number) {
  const addresses = [
    { family: IPFamily.v4, address: `192.168.${network}.2`, mask: '24' },
    { family: IPFamily.v6, address: `fd${network}::2`, mask: '64' },
  ]
  return { name, device: name, hwAddr, mtu: 1500n, IPAddresses: addresses }
}

function literal(address: string): string {
  return address.includes(':') ? `[${address}]` : address
}
