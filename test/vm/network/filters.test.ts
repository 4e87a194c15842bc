import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { rulesOf, tableOf, withoutTable } from '../../../src/host/instance/filters/tap-rules.ts'
import { NETWORK_FILTERS } from '../../../src/host/spec/spec.ts'
import { specKey } from '../../../src/host/spec/spec-key.ts'
import type { Pod } from '../../support/containers/pod.ts'
import { temporaryFolder } from '../../support/temporary-folder.ts'
import { CRUN, cannotBoot, type TestGuest } from '../../support/vm/boot-guest.ts'
import { bootPod } from '../../support/vm/guest-pod.ts'
import { type HostNetwork, makeHostNetwork } from '../../support/vm/host-network.ts'
import { metadataItem } from '../../support/vm/metadata-item.ts'

const TAP = 'tap0'
const MAC = '52:54:00:00:01:01'
const OWN = '10.0.0.2'
const OTHER = '10.0.0.66'
const OTHER_MAC = '52:54:00:00:01:66'
const HOST = '10.0.0.1'

/** What the guest does; each is answered where nothing is filtered. */
const SENDS = {
  honest: `ping -c 1 -W 3 ${HOST}`,
  'another address': `ping -c 1 -W 3 -I ${OTHER} ${HOST}`,
  'the ARP of another address': `arping -I eth0 -c 1 -w 3 -s ${OTHER} ${HOST}`,
  'another MAC': `ip link set eth0 address ${OTHER_MAC} && arping -I eth0 -c 1 -w 3 -s ${OWN} ${HOST}; s=$?; ip link set eth0 address ${MAC}; (exit $s)`,
} as const

describe.skipIf(cannotBoot() !== undefined)('a guest that spoofs', () => {
  let host: HostNetwork
  let guest: TestGuest
  let pod: Pod

  beforeAll(async () => {
    host = await makeHostNetwork({ [TAP]: [`${HOST}/24`] })
    const { devices, backends } = metadataItem(temporaryFolder())
    const net = specKey('net')
    const extra = {
      devices: { ...devices, [specKey('card')]: { kind: 'nic', slot: 6, mac: MAC, backend: net } as const },
      backends: { ...backends, [net]: { kind: 'tap', interfaceName: TAP } as const },
    }
    const append = [CRUN, `agent.metadata_interface=${MAC}`]
    ;({ guest, pod } = await bootPod({ append, networkNamespace: host.namespace.path, extra }))
    expect(await answered('setup', [`ip address add ${OTHER}/24 dev eth0`])).toEqual([true])
  })

  afterAll(async () => {
    await guest?.stop()
    await host?.close()
  })

  /** Whether each of the commands was answered, in the order of the table. */
  async function answered(id: string, commands: readonly string[] = Object.values(SENDS)) {
    // The last command before has changed what the host knows.
    host.namespace.ip(`neigh flush dev ${TAP}`)
    const script = commands.map((command) => `(${command}) >&2 && echo true || echo false`).join('\n')
    const output = await pod.output(id, script, { capabilities: ['CAP_NET_RAW', 'CAP_NET_ADMIN'] })
    return output
      .trim()
      .split('\n')
      .map((line) => line === 'true')
  }

  it('reaches nobody through the filters of its tap, and all before and after', async () => {
    const table = tableOf('/state', 'net')
    const card = { mac: MAC, filters: NETWORK_FILTERS, addresses: [OWN] }
    const nft = (rules: object) => host.namespace.run('nft', '-j', JSON.stringify(rules))
    expect(await answered('before')).toEqual([true, true, true, true])
    nft(rulesOf({ table, interfaceName: TAP, card }))
    expect(await answered('with')).toEqual([true, false, false, false])
    nft(withoutTable(table))
    expect(await answered('after')).toEqual([true, true, true, true])
  })
})
