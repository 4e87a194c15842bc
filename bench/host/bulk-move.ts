import { neverAborted } from '../../src/base/abort.ts'
import { makeTemporaryFolder, removeTemporaryFolder } from '../../src/build/temporary-folder.ts'
import { openIncoming } from '../../src/host/migration/bulk/incoming.ts'
import { openOutgoing } from '../../src/host/migration/bulk/outgoing.ts'
import { bulkSettings } from '../../src/host/migration/bulk/settings.ts'
import { BulkPairs, type MoveTimes } from '../support/bulk-pairs.ts'
import { median, report } from '../support/figure.ts'

/**
 * The move of a memory of 512 MiB, 384 of which are used, and of a disk of 256 MiB; and the same commands of QEMU by hand. QEMU by
 * hand may lose writes of an emulated guest (src/host/migration/bulk/live-emulation.ts).
 */
const ROUNDS = 3

const folder = makeTemporaryFolder('/tmp')
const pairs = await BulkPairs.open(folder)

async function own(): Promise<MoveTimes> {
  const [source, target] = await pairs.pair()
  const begun = performance.now()
  const listen = { host: '127.0.0.1', tls: pairs.tlsOf('b', 'a') }
  const incoming = await openIncoming(target, { disks: [target.disk], listen })
  const outgoing = await openOutgoing(source, {
    ...{ disks: [source.disk], endpoints: incoming, tls: pairs.tlsOf('a', 'b'), settings: bulkSettings() },
    ...{ wasRunning: true, signal: neverAborted },
  })
  await outgoing.copyDisks()
  const stoppedAt = await outgoing.sendMemory()
  await outgoing.endDisks()
  await outgoing.endMemory()
  await incoming.arrived
  await incoming.endDisks()
  await target.qmp.execute('cont', {}, neverAborted)
  const ended = performance.now()
  outgoing.finish()
  return { wholeMs: ended - begun, stoppedMs: ended - stoppedAt }
}

async function measured(move: () => Promise<MoveTimes>): Promise<MoveTimes> {
  const times = await move()
  await pairs.end()
  return times
}

try {
  const all: Record<'own' | 'tls' | 'plain', MoveTimes[]> = { own: [], tls: [], plain: [] }
  for (let round = 0; round < ROUNDS; round++) {
    all.plain.push(await measured(() => pairs.byHand(false)))
    all.tls.push(await measured(() => pairs.byHand(true)))
    all.own.push(await measured(own))
  }
  const middle = (name: keyof typeof all, field: keyof MoveTimes) =>
    median(all[name].map((times) => times[field]))
  const figures = [
    { field: 'wholeMs', figure: 'disk and memory moved', limit: 1.3 },
    { field: 'stoppedMs', figure: 'guest stopped for a move', limit: 2.5 },
  ] as const
  for (const { field, figure, limit } of figures)
    for (const floor of ['tls', 'plain'] as const) {
      const by = floor === 'tls' ? 'by hand with TLS' : 'by hand without TLS'
      const value = middle('own', field)
      report({ figure: `${figure}, and ${by}`, unit: 'ms', value, floor: middle(floor, field), limit })
    }
} finally {
  await pairs.end()
  removeTemporaryFolder(folder)
}
