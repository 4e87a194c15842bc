import { randomBytes } from 'node:crypto'
import { createPod } from '../../test/support/vm/guest-pod.ts'
import { type MovableGuest, SavedGuest } from '../../test/support/vm/saved/saved-guest.ts'
import { median, report } from '../support/figure.ts'

/**
 * How long a guest with a container takes from Resumed to ready, in place, and its steps; and before that to answer Check on
 * a new connection.
 */
const ROUNDS = 10
/** The goals for an emulated guest, in milliseconds. */
const GOAL = 500
const CHECK_GOAL = 250

const saved = new SavedGuest()
try {
  const guest = await saved.boot('11111111-2222-3333-4444-555555555550')
  const pod = await createPod(guest.agent, guest.rootSource)
  await pod.run('idle', ['sleep', '100000'])
  const rounds: Awaited<ReturnType<typeof repair>>[] = []
  for (let round = 0; round <= ROUNDS; round++) rounds.push(await repair(guest, `round ${round}`))
  // The first one loads what the others find.
  const [first, ...others] = rounds
  const timeOf = (name: string) =>
    median(others.map(({ told }) => Number(told.steps.find((step) => step.name === name)?.durationMs)))
  const phases = Object.fromEntries((first?.told.steps ?? []).map(({ name }) => [name, timeOf(name)]))
  const goal = { unit: 'ms', floor: GOAL, limit: 1 } as const
  const value = median(others.map(({ ms }) => ms))
  report({ figure: 'Resumed until ready, in place', ...goal, value, phases })
  const checks = { floor: CHECK_GOAL, limit: 1, value: median(others.map(({ checkMs }) => checkMs)) }
  report({ figure: 'Check on a new connection before the repair', unit: 'ms', ...checks })
  report({ figure: 'the first Resumed until ready', ...goal, value: first?.ms ?? 0 })
} finally {
  await saved.close()
}

async function repair(guest: MovableGuest, generation: string) {
  await guest.pause(60)
  const goneOn = performance.now()
  const other = await guest.connect()
  const checkMs = performance.now() - goneOn
  other.close()
  const began = performance.now()
  const timeNs = BigInt(Date.now()) * 1_000_000n
  const { number } = await guest.lifecycle.resumed({ generation, seed: randomBytes(64), timeNs })
  const told = await guest.lifecycle.getResume({ number, timeoutMs: 60_000 })
  if (told.state !== 'ready') throw new Error(`${generation}: ${told.state}`)
  return { checkMs, ms: performance.now() - began, told }
}
