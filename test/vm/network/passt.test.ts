import { readdirSync } from 'node:fs'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { IPFamily } from '../../../src/gen/types.ts'
import { readExits } from '../../../src/host/instance/holder/holder-files.ts'
import { specKey } from '../../../src/host/spec/spec-key.ts'
import type { Pod } from '../../support/containers/pod.ts'
import { temporaryFolder } from '../../support/temporary-folder.ts'
import { cannotBoot } from '../../support/vm/boot-guest.ts'
import { bootInDaemon, type DaemonGuest } from '../../support/vm/daemon-guest.ts'
import { createPod } from '../../support/vm/guest-pod.ts'
import { type HostNetwork, makeHostNetwork } from '../../support/vm/host-network.ts'
import { debianPrograms } from '../../support/wing/debian-programs.ts'

const MAC = '52:54:00:00:01:01'
/** passt gives the guest the address of the host's interface. */
const ADDRESS = '192.0.2.2'
const GATEWAY = '192.0.2.1'

describe.skipIf(cannotBoot() !== undefined)('a guest behind passt', () => {
  const folder = temporaryFolder()
  let host: HostNetwork
  let outside: HostNetwork
  let guest: DaemonGuest
  let pod: Pod

  beforeAll(async () => {
    ;[host, outside] = await Promise.all([makeHostNetwork({}), makeHostNetwork({})])
    host.namespace.ip('link add host0 type veth peer name outside0')
    host.namespace.ip(`link set outside0 netns ${outside.namespace.path.split('/')[2]}`)
    for (const [{ namespace }, name, address] of [
      [outside, 'outside0', GATEWAY],
      [host, 'host0', ADDRESS],
    ] as const) {
      namespace.ip(`link set ${name} up`)
      namespace.ip(`address add ${address}/24 dev ${name}`)
    }
    host.namespace.ip(`route add default via ${GATEWAY}`)
    await Promise.all([host.serve(8000, 'the host itself'), outside.serve(8000, 'the outside')])
    const [card, net] = [specKey('card'), specKey('net')]
    guest = await bootInDaemon({
      folder,
      extra: {
        devices: { [card]: { kind: 'nic', slot: 9, mac: MAC, replaceable: true, backend: net } },
        backends: { [net]: { kind: 'passt' } },
      },
      daemon: {
        enter: host.namespace.enter,
        env: { PATH: `${await debianPrograms('passt')}:${process.env.PATH}` },
      },
    })
    pod = await createPod(guest.agent, guest.rootSource)
    const address = { family: IPFamily.v4, address: ADDRESS, mask: '24' }
    const card0 = { name: 'eth0', device: 'eth0', hwAddr: MAC, mtu: 1500n, IPAddresses: [address] }
    await pod.agent.updateInterface({ interface: card0 })
    const route = { dest: '', gateway: GATEWAY, device: 'eth0', family: IPFamily.v4 }
    await pod.agent.updateRoutes({ routes: { Routes: [route] } })
  })

  afterAll(async () => {
    await guest?.close()
    await host?.close()
    await outside?.close()
  })

  it('reaches the gateway and not the host, also once passt was killed', async () => {
    const ask = (id: string) => pod.output(id, `wget -q -O - http://${GATEWAY}:8000/`)
    expect(await ask('first')).toBe('the outside')
    const first = await passtOf(folder)
    process.kill(first, 'SIGKILL')
    await expect.poll(() => passtOf(folder), { timeout: 20_000 }).not.toBe(first)
    expect(await ask('second')).toBe('the outside')
  })
})

/** The pid of passt, which stays known when it has ended. */
async function passtOf(folder: string): Promise<number> {
  const instances = join(folder, 'state/instances')
  const [name = ''] = readdirSync(instances)
  const children = await readExits(join(instances, name))
  return children.find((child) => child.name.startsWith('passt'))?.pid ?? 0
}
