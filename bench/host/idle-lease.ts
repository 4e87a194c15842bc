import { readFileSync } from 'node:fs'
import { setTimeout as delay } from 'node:timers/promises'
import { buildHolder } from '../../src/build/native.ts'
import { makeTemporaryFolder, removeTemporaryFolder } from '../../src/build/temporary-folder.ts'
import { startHolder } from '../../src/host/instance/holder/start-holder.ts'
import { QEMU } from '../../src/host/instance/machine/machine.ts'
import { report } from '../support/figure.ts'

/** How often a holder wakes up while nobody renews its lease, which ends by a timer of the kernel; without one it sleeps, too. */
const SECONDS = 10
const HOUR_NS = 3_600_000_000_000n

const folder = makeTemporaryFolder('/tmp')
const holder = await startHolder(folder, await buildHolder())
try {
  await holder.start({ name: QEMU.child, argv: ['sleep', '1000'], walls: [], output: 'log' })
  const floor = await wakeUps()
  await holder.setLease(boottimeNs() + HOUR_NS)
  const value = await wakeUps()
  if ((await holder.heldLease())?.hasEnded !== false) throw new Error('the holder has no lease')
  const figure = `wake-ups of a holder with an idle lease in ${SECONDS} s`
  report({ figure, unit: 'wake-ups', value, floor, limit: 1 })
} finally {
  await holder.end()
  removeTemporaryFolder(folder)
}

async function wakeUps(): Promise<number> {
  // What it was asked before ends.
  await delay(500)
  const before = switches()
  await delay(SECONDS * 1000)
  return switches() - before
}

/** Each wake-up counts as a voluntary context switch. */
function switches(): number {
  const status = readFileSync(`/proc/${holder.pid}/status`, 'utf8')
  return Number(/^voluntary_ctxt_switches:\s+(\d+)/m.exec(status)?.[1])
}

/** CLOCK_BOOTTIME, to 10 ms. */
function boottimeNs(): bigint {
  const [seconds = '0'] = readFileSync('/proc/uptime', 'utf8').split(' ')
  return BigInt(Math.round(Number(seconds) * 1000)) * 1_000_000n
}
