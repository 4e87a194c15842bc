import { setImmediate as turn } from 'node:timers/promises'
import fc from 'fast-check'
import { describe } from 'vitest'
import { AgentError } from '../../src/base/errors.ts'
import { VMMetadata } from '../../src/gen/vm.ts'
import { NetworkRecord } from '../../src/handlers/network/network-record.ts'
import { configureNetwork } from '../../src/handlers/network/vm-metadata/configure-network.ts'
import { readVmMetadata } from '../../src/handlers/network/vm-metadata/read-vm-metadata.ts'
import { FakeOs } from '../support/fakes/fake-os.ts'
import { recordingLog } from '../support/fakes/recording-log.ts'
import { anyBytes } from '../support/fuzz/bytes.ts'
import { fuzz } from '../support/fuzz/fuzz.ts'
import { words } from '../support/fuzz/requests.ts'
import { BARE_ITEM, firmwareTree, type Item, OPT_ITEM } from '../support/handlers/network/firmware-tree.ts'

const SEEDS = [
  { v4: { ip: '10.0.0.2', peerIp: '10.0.0.1' }, v6: { ip: 'fd00::2', peerIp: 'fd00::1' } },
  { v4: { ip: '10.0.0.2', peerIp: '10.0.0.1' } },
].map((networkConfig) => VMMetadata.encode(VMMetadata.create({ name: 'vm', networkConfig })).finish())

const WORD = words()
const LINK = fc.option(fc.record({ ip: WORD, peerIp: WORD }), { nil: undefined })
const worded = fc
  .record({ name: WORD, networkConfig: fc.record({ v4: LINK, v6: LINK }) })
  .map((metadata) => VMMetadata.encode(VMMetadata.create(metadata)).finish())

/** An item as QEMU shows it, whole or cut, with any size. */
const ITEM: fc.Arbitrary<Item> = fc
  .record({
    name: fc.constantFrom(OPT_ITEM, BARE_ITEM),
    bytes: fc.oneof(anyBytes(SEEDS), worded),
    size: fc.option(
      fc.oneof(fc.constantFrom(-1, 0, 65_536, 65_537, Number.NaN, Number.POSITIVE_INFINITY), fc.nat(100)),
      { nil: undefined, freq: 8 },
    ),
    byKeyOnly: fc.boolean(),
  })
  .map(({ size, ...item }) => (size === undefined ? item : { ...item, size }))

describe('VM metadata', () => {
  fuzz('vm-metadata/items', {
    share: 40,
    batch: 500,
    input: fc.array(ITEM, { maxLength: 2 }),
    show: (items) =>
      JSON.stringify(items.map((item) => ({ ...item, bytes: Buffer.from(item.bytes).toString('hex') }))),
    run: configure,
  })
})

/** Items are applied as far as they are valid, or ignored with a log line; a second run must change nothing. */
async function configure(items: readonly Item[]): Promise<void> {
  const { lines, log } = recordingLog()
  const found = await readVmMetadata(
    await firmwareTree(
      items.filter(({ name }, index) => items.findIndex((other) => other.name === name) === index),
    ),
    log,
  )
  if (found === undefined) {
    if (lines.length === 0) throw new Error('nothing found, and nothing said')
    return
  }
  const { clock, files, network, uevents } = new FakeOs()
  network.addLink({ name: 'eth0' })
  const dependencies = {
    clock,
    files,
    network,
    uevents,
    log,
    record: new NetworkRecord(log),
    interface: '',
    timeoutMs: 3000,
  }
  let outcome: unknown
  const applied = configureNetwork(dependencies, found).then(
    (changed) => {
      outcome = changed
    },
    (error: unknown) => {
      outcome = error
    },
  )
  for (let turns = 0; outcome === undefined; turns++) {
    if (turns === 200) throw new Error('it does not end')
    await turn()
    clock.advance(100)
  }
  await applied
  if (outcome instanceof Error && !(outcome instanceof AgentError)) throw outcome
  if (clock.sleeping > 0 || uevents.listeners.size > 0) throw new Error('timers or sockets are left')
  const { length } = network.changes
  const again = await configureNetwork(dependencies, found).catch(() => false)
  if (again || network.changes.length > length)
    throw new Error(`applied again, it changes ${JSON.stringify(network.changes.slice(length))}`)
}
