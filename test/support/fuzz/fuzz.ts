import { appendFileSync, writeSync } from 'node:fs'
import { setImmediate as turn } from 'node:timers/promises'
import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'
import fc from 'fast-check'
import { it } from 'vitest'
import {
  DEFAULT_CASES,
  FUZZ,
  type FuzzCase,
  type FuzzFigures,
  parseCase,
} from '../../../scripts/test/fuzz-run.ts'
import { messageOf } from '../../../src/base/errors.ts'
import { type CaseWatch, watchCases } from './watch-cases.ts'

/** A part of the agent that reads what others wrote. */
export interface Target<Input> {
  /** Its part of all cases of the group, which together have 1000. */
  readonly share: number
  readonly input: fc.Arbitrary<Input>
  /** The input of a failed case, such as its bytes in hex. */
  readonly show: (input: Input) => string
  /** Gives the input to the part. Throws, or rejects, when something is not as it must be. */
  readonly run: (input: Input) => void | Promise<void>
  /** Called after every batch of cases, such as to look for what they left. */
  readonly afterBatch?: () => void | Promise<void>
  /** The cases of a batch; less where cases are long. */
  readonly batch?: number
  /** Gives each case a seed of its own, the next one from 1 on unless the run names one, and says how it is run again. */
  readonly bySeed?: (seed: number) => string
}

/** A case that takes longer has failed, on a busy machine too. */
const CASE_MS = 20_000

/** A batch in which a case has failed, and is made smaller, ends after this time. */
const BATCH_MS = 10 * 60_000

/** How much larger the heap may be after all cases of a target, which leave nothing. */
const KEPT_MIB = 48

/** How much larger the process may be than it was after half of them. V8 and the allocator return memory late. */
const RESIDENT_MIB = 256

const MIB = 1024 * 1024

/**
 * Declares a test that gives a target its share of the run's cases. Each must end within {@link CASE_MS}, and all together
 * must not leave memory in use. A failed case is made smaller, and printed with the words that run it again.
 */
export function fuzz<Input>(name: `${string}/${string}`, target: Target<Input>): void {
  const replay = parseCase(process.env[FUZZ.replay] ?? '')
  it(
    name,
    async (context) => {
      if (replay !== undefined && replay.target !== name) context.skip('another case is run again')
      const watch = watchCases(2 * CASE_MS)
      try {
        if (replay === undefined) await runAll(name, target, watch)
        else await runBatch(name, target, watch, { replay })
      } finally {
        watch.end()
      }
    },
    24 * 60 * 60_000,
  )
}

async function runAll<Input>(name: string, target: Target<Input>, watch: CaseWatch): Promise<void> {
  const cases = Math.max(1, Math.round((numberFrom(FUZZ.cases, DEFAULT_CASES) * target.share) / 1000))
  const seed = numberFrom(FUZZ.seed, target.bySeed ? 1 : Math.floor(Math.random() * 0x7fffffff))
  const batch = target.bySeed ? 1 : (target.batch ?? 1000)
  const seedAt = (index: number) => (target.bySeed ? seed + index : seedOf(seed, name, index))
  let left = cases
  // The first batch loads and compiles what all cases use.
  const first = Math.min(left, batch)
  let maxMs = await runBatch(name, target, watch, { seed: seedAt(0), cases: first })
  left -= first
  const before = await memory()
  const start = performance.now()
  const tell = progressOf(name, cases)
  let half: number | undefined
  for (let index = 1; left > 0; index++) {
    const size = Math.min(left, batch)
    maxMs = Math.max(maxMs, await runBatch(name, target, watch, { seed: seedAt(index), cases: size }))
    left -= size
    tell(cases - left)
    if (left <= cases / 2) half ??= (await memory()).rss
  }
  const after = await memory()
  const figures: FuzzFigures = {
    target: name,
    cases,
    seconds: (performance.now() - start) / 1000,
    maxMs,
    residentMib: (after.rss - (half ?? before.rss)) / MIB,
    usedMib: (after.used - before.used) / MIB,
  }
  const file = process.env[FUZZ.figures]
  if (file !== undefined) appendFileSync(file, `${JSON.stringify(figures)}\n`)
  if (figures.usedMib > KEPT_MIB || figures.residentMib > RESIDENT_MIB) {
    throw new Error(
      `${name}: ${cases} cases left ${figures.usedMib.toFixed(1)} MiB of the heap in use, and the process is ${figures.residentMib.toFixed(0)} MiB larger; --seed ${seed}`,
    )
  }
}

/** Runs cases, and returns the milliseconds of the longest. Throws for one that fails. */
async function runBatch<Input>(
  name: string,
  { input, show, run, afterBatch, bySeed }: Target<Input>,
  watch: CaseWatch,
  batch: { readonly seed: number; readonly cases: number } | { readonly replay: FuzzCase },
): Promise<number> {
  let maxMs = 0
  const seed = 'replay' in batch ? batch.replay.seed : batch.seed
  watch.beginBatch(`${name}:${seed}`)
  let uncaught: unknown
  const onUncaught = (error: unknown) => {
    uncaught = error
  }
  const property = fc.asyncProperty(input, async (value) => {
    watch.beginCase()
    const start = performance.now()
    await run(value)
    maxMs = Math.max(maxMs, performance.now() - start)
    const thrown = uncaught
    uncaught = undefined
    if (thrown !== undefined) throw new Error(`outside of any call: ${messageOf(thrown)}`, { cause: thrown })
  })
  process.on('uncaughtException', onUncaught).on('unhandledRejection', onUncaught)
  const limits =
    'replay' in batch ? { path: batch.replay.path, numRuns: 1, endOnFailure: true } : { numRuns: batch.cases }
  const result = await fc.check(property, {
    // The first case of a run prefers small values.
    ...{ seed, ...limits, unbiased: bySeed !== undefined },
    ...{ timeout: CASE_MS, interruptAfterTimeLimit: BATCH_MS },
  })
  process.off('uncaughtException', onUncaught).off('unhandledRejection', onUncaught)
  if (result.failed && result.counterexample !== null) {
    const [value] = result.counterexample
    const again = `npm run fuzz -- --replay ${name}:${seed}:${result.counterexamplePath ?? 0}`
    const whole = bySeed === undefined ? '' : `\n${bySeed(seed)}`
    throw new Error(`${messageOf(result.errorInstance)}${whole}\n${again}\n${show(value)}`, {
      cause: result.errorInstance,
    })
  }
  if (result.interrupted) throw new Error(`${name}:${seed}: ${result.numRuns} cases took too long`)
  await afterBatch?.()
  return maxMs
}

/** Prints how many cases of a target are done, now and then, past vitest, which prints a file at its end. */
function progressOf(name: string, cases: number): (done: number) => void {
  const everyMs = 1000 * numberFrom(FUZZ.progressSeconds, Number.POSITIVE_INFINITY)
  let next = performance.now() + everyMs
  return (done) => {
    if (performance.now() < next) return
    next = performance.now() + everyMs
    writeSync(2, `     ${name}: ${done} of ${cases}\n`)
  }
}

/** A batch's own seed: the same for the same run, whichever targets it has. */
function seedOf(seed: number, name: string, index: number): number {
  let hash = seed ^ Math.imul(index + 1, 0x9e3779b1)
  for (const character of name) hash = Math.imul(hash ^ character.charCodeAt(0), 0x01000193)
  return hash | 0
}

function numberFrom(variable: string, byDefault: number): number {
  const text = process.env[variable]
  return text === undefined ? byDefault : Number(text)
}

/** Bytes in use after garbage collections, and the size of the process. */
async function memory(): Promise<{ readonly used: number; readonly rss: number }> {
  setFlagsFromString('--expose-gc')
  // This context is new, so it has the function of the flag.
  const collect: () => void = runInNewContext('gc')
  // What is released by finalizers, such as of signals, goes in a later one.
  for (let count = 0; count < 3; count++) {
    collect()
    await turn()
  }
  const { heapUsed, arrayBuffers, rss } = process.memoryUsage()
  return { used: heapUsed + arrayBuffers, rss }
}
