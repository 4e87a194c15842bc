import { cpuMsOf } from './process-figures.ts'

export interface Calls {
  readonly aRound: number
  /** The time of a call is then that of a round, divided by the calls. */
  readonly atOnce: number
  readonly call: () => Promise<unknown>
  readonly pids: readonly number[]
  readonly elapsed: number[]
  /** Microseconds of CPU time for a call: for each process, one value for each round. */
  readonly cpu: readonly number[][]
}

export function calls(
  aRound: number,
  pids: readonly number[],
  call: () => Promise<unknown>,
  atOnce = 1,
): Calls {
  return { aRound, atOnce, call, pids, elapsed: [], cpu: pids.map(() => []) }
}

/** V8 has compiled all that an empty call needs after some 50,000 calls; calls one at a time never come that far. */
const WARM_UP_CALLS = 50_000

/** Measures each of them `rounds` times, by turns. */
export async function measureCalls(all: readonly Calls[], rounds: number): Promise<void> {
  // The first call of another kind makes V8 discard compiled code, so that all kinds come before the rest of the warm-up.
  for (const each of all) await round(each, true)
  for (const each of all) {
    if (each.atOnce > 1) await round({ ...each, aRound: WARM_UP_CALLS }, true)
  }
  for (let count = 0; count < rounds; count++) {
    for (const each of all) await round(each, false)
  }
}

async function round({ aRound, atOnce, call, pids, elapsed, cpu }: Calls, isWarmUp: boolean): Promise<void> {
  const before = pids.map(cpuMsOf)
  const begin = performance.now()
  const caller = async (calls: number) => {
    for (let made = 0; made < calls; made++) {
      const start = performance.now()
      await call()
      if (!isWarmUp && atOnce === 1) elapsed.push((performance.now() - start) * 1000)
    }
  }
  await Promise.all(Array.from({ length: atOnce }, () => caller(aRound / atOnce)))
  if (!isWarmUp && atOnce > 1) elapsed.push(((performance.now() - begin) * 1000) / aRound)
  if (isWarmUp) return
  pids.forEach((pid, index) => {
    cpu[index]?.push(((cpuMsOf(pid) - (before[index] ?? 0)) * 1000) / aRound)
  })
}
