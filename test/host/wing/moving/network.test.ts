import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { METADATA_ITEM } from '../../../../src/base/vm-metadata/point-to-point.ts'
import {
  type DeepPartial,
  Instance,
  type Specification,
} from '../../../../src/gen/microvm/instance/v1/instance.ts'
import { VMMetadata } from '../../../../src/gen/vm.ts'
import { instanceJson } from '../../../../src/microvm/machines/command.ts'
import { temporaryFolder } from '../../../support/temporary-folder.ts'
import { CountingMachines } from '../../../support/wing/counting-machine.ts'
import { type BridgedHosts, startBridgedHosts } from '../../../support/wing/moves/bridged-hosts.ts'

const TIMEOUT_MS = 120_000
const MAC = '52:54:00:00:01:01'
/** Of the host's end: in a bridge, from the guest's, and the same one for each machine without a bridge. */
const PORT_MAC = 'fe:54:00:00:01:01'
const HOST_MAC = 'fe:ff:ff:ff:ff:ff'
const LINK = { v4: { ip: '10.9.8.7', peerIp: '169.254.1.1' }, v6: { ip: 'fd00:9::7', peerIp: 'fd00:9::1' } }

interface Neighbour {
  readonly dst: string
  readonly lladdr?: string
}

describe('the network of a machine that moves', { timeout: TIMEOUT_MS }, () => {
  const folder = temporaryFolder()
  const machines = new CountingMachines(folder, folder)
  let hosts: BridgedHosts

  beforeAll(async () => {
    hosts = await startBridgedHosts()
  }, TIMEOUT_MS)

  afterAll(async () => {
    for (const host of ['a', 'b'] as const) await hosts.run(host, 'rm', 'web').catch(() => {})
    await hosts.end()
  })

  async function start(key: string, change: DeepPartial<Specification>): Promise<void> {
    const { specification } = machines.request(key, change)
    const file = join(folder, 'web.json')
    const machine = Instance.fromPartial({
      properties: { key },
      ...(specification && { specification }),
    })
    writeFileSync(file, JSON.stringify(instanceJson(machine)))
    await hosts.run('a', 'ensure', file)
    await hosts.run('a', 'start', key)
  }

  it('is announced on the bridge of its new host, by which all bridges learn', async () => {
    const { a, b } = hosts.namespaces
    await start('web', {
      devices: { card: { backend: 'tap', slot: 5, nic: { mac: MAC } } },
      backends: { tap: { tap: { interfaceName: 'tap-web', bridge: 'br0' } } },
    })
    // A bridge would take a lower one for its own, and be lost to its neighbours.
    expect(a.run('ip', 'link', 'show', 'dev', 'tap-web')).toContain(`link/ether ${PORT_MAC} `)
    const placeOf = (namespace: typeof a) =>
      namespace.run('bridge', 'fdb', 'show', 'br', 'br0').match(new RegExp(`^${MAC} dev (\\S+) `, 'm'))?.[1]
    // As if its guest had sent something there.
    a.run('bridge', 'fdb', 'replace', MAC, 'dev', 'tap-web', 'master', 'dynamic')
    await hosts.run('a', 'migrate', 'web', '--to', 'b', '--without-agent')
    await expect.poll(() => placeOf(a), { timeout: 5000 }).toBe('to-b')
    expect(placeOf(b)).toBe('tap-web')
    expect(a.run('ip', 'link')).not.toContain('tap-web')
    await hosts.run('b', 'rm', 'web')
  })

  it('has the same link to its new host, with its route and neighbour, and none to the host before', async () => {
    const { a, b } = hosts.namespaces
    const metadata = join(folder, 'metadata.pb')
    writeFileSync(metadata, VMMetadata.encode(VMMetadata.fromPartial({ networkConfig: LINK })).finish())
    await start('web', {
      devices: {
        card: { backend: 'tap', slot: 5, nic: { mac: MAC } },
        metadata: { backend: 'metadata-content', firmwareItem: { name: METADATA_ITEM } },
      },
      backends: {
        tap: { tap: { interfaceName: 'tap-web' } },
        'metadata-content': { content: { path: metadata } },
      },
    })
    const seen = (namespace: typeof a) => ({
      routes: ['-4', '-6'].flatMap((family) =>
        namespace
          .run('ip', family, 'route')
          .split('\n')
          .filter((line) => /^(10\.9\.8\.7|fd00:9::7) dev tap-web /.test(line)),
      ).length,
      neighbours: namespace
        .show<readonly Neighbour[]>('neighbour')
        .filter(({ dst, lladdr }) => [LINK.v4.ip, LINK.v6.ip].includes(dst) && lladdr === MAC).length,
      mac: namespace.run('ip', 'link').match(/tap-web.*\n.*link\/ether (\S+)/)?.[1],
    })
    const [there, gone] = [
      { routes: 2, neighbours: 2, mac: HOST_MAC },
      { routes: 0, neighbours: 0, mac: undefined },
    ]
    expect([seen(a), seen(b)]).toEqual([there, gone])
    const answer = await hosts.run('a', 'migrate', 'web', '--to', 'b', '--without-agent')
    expect(answer).toMatch(/^web: runs on b .*\nmove .*\narrival /s)
    expect([seen(a), seen(b)]).toEqual([gone, there])
  })
})
