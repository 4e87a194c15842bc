import { execFileSync } from 'node:child_process'
import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { afterEach, beforeEach, expect, it } from 'vitest'
import {
  ChangeStateRequest_Change as Change,
  EnsureInstanceRequest,
  PlugRequest,
} from '../../../../src/gen/microvm/instance/v1/instance.ts'
import type { Instances } from '../../../../src/host/instance/instances.ts'
import { memoryRegistry } from '../../../../src/host/instance/registry/memory-registry.ts'
import { temporaryFolder } from '../../../support/temporary-folder.ts'
import { leftovers } from '../../../support/wing/leftovers.ts'
import { openReal } from '../../../support/wing/real-wing.ts'
import { tenant } from '../../../support/wing/requests.ts'

const ANNE = tenant('anne')
const key = 'web'
let [folder, catalogue] = ['', '']
let instances: Instances

beforeEach(async () => {
  folder = temporaryFolder()
  catalogue = join(folder, 'catalogue.toml')
  await writeNetworks('interface = "mvfd0"')
  instances = await openReal(join(folder, 's'), memoryRegistry(), { catalogue })
})

afterEach(async () => {
  await instances.remove(key, ANNE).catch(() => {})
  await instances.close()
  expect(leftovers(join(folder, 's'))).toEqual([])
})

async function writeNetworks(lan: string): Promise<void> {
  const own = 'tenants = ["anne"]\n'
  const text = `[networks.lan]\n${lan}\n${own}[networks.more]\ninterface = "mvfd1"\n${own}[networks.out]\npasst = true\n${own}`
  await writeFile(catalogue, text, { mode: 0o600 })
}

function ensure(network: unknown, metadata?: unknown) {
  const features = { memory: 64, network, ...(metadata !== undefined && { metadata }) }
  const document = JSON.stringify({ kind: 'VM', spec: { features } })
  return instances.ensure(EnsureInstanceRequest.fromPartial({ properties: { key }, document }), ANNE)
}

const plug = (deviceKey: string, features: string) =>
  instances.plug(PlugRequest.fromPartial({ key, deviceKey, features: `network: [${features}]` }), ANNE)
const change = (to: Change) => instances.changeState({ key, change: to, graceMs: 0 }, ANNE)

function rulesOf(card: string): string {
  const all = execFileSync('nft', ['list', 'ruleset', 'netdev'], { encoding: 'utf8' })
  return (
    all
      .split('\ntable')
      .find((table) => table.includes(`device "${card}"`))
      ?.trim() ?? ''
  )
}

it('a filter is refused by its field where the network has no tap', async () => {
  const message = 'only a tap can be filtered'
  await expect(ensure([{ source: 'out', filter: 'no-mac-spoofing' }])).rejects.toMatchObject({
    ...{ code: 'INVALID_ARGUMENT', message: `spec.features.network[0].filter: ${message}` },
  })
  await ensure([{ source: 'lan', filter: 'no-mac-spoofing' }])
  await expect(plug('out', '{ source: out, filter: no-mac-spoofing }')).rejects.toMatchObject({
    ...{ code: 'INVALID_ARGUMENT', message: `features.network[0].filter: ${message}` },
  })
  await expect(plug('more', '{ source: more, filter: clean-traffic }')).rejects.toMatchObject({
    ...{
      code: 'INVALID_ARGUMENT',
      message: expect.stringContaining('features.network[0].addresses: missing'),
    },
  })
  await change(Change.KILL)
  await writeNetworks('passt = true')
  await expect(change(Change.RUN)).rejects.toThrow(`spec.features.network[0].filter: ${message}`)
})

it('a card keeps its addresses when another one comes, also at the next start', async () => {
  await ensure([{ source: 'lan', filter: 'no-ip-spoofing' }], { v4: { ip: '10.0.0.2/24', peer: '10.0.0.1' } })
  const before = rulesOf('mvfd0')
  expect(before).toContain('10.0.0.2')
  await plug('more', '{ source: more, filter: no-ip-spoofing, addresses: [10.0.1.2] }')
  expect(rulesOf('mvfd0')).toBe(before)
  expect(rulesOf('mvfd1')).toContain('10.0.1.2')
  await change(Change.KILL)
  await change(Change.RUN)
  expect(rulesOf('mvfd0')).toBe(before)
  expect(rulesOf('mvfd1')).toContain('10.0.1.2')
})
