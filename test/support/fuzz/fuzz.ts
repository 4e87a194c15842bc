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

export interface Target<Input> {
  /** The target's share of the group's cases; all shares add up to 1000. */
  readonly share: number
  readonly input: fc.Arbitrary<Input>
  readonly show: (input: Input) => string
  /** Gives the input to the part. Throws or rejects when something is wrong. */
  readonly run: (input: Input) => void | Promise<void>
  /** Called after every batch, for instance to look for leftovers. */
  readonly afterBatch?: () => void | Promise<void>
  /** The number of cases in a batch; smaller where cases are long. */
  readonly batch?: number
  /** Gives each case its own seed, counting from the run's seed or from 1. Returns the command that runs it again. */
  readonly bySeed?: (seed: number) => string
}

/** A case that takes longer has failed, even on a busy machine. */
const CASE_MS = 20_000

/** The time limit of a batch, including the shrinking of a failed case. */
const BATCH_MS = 10 * 60_000

/** The largest growth of the heap over all cases of a target. */
const KEPT_MIB = 48

/** The largest growth of the process after half of the cases. V8 and the allocator return memory late. */
const RESIDENT_MIB = 256

const MIB = 1024 * 1024

/**
 * Declares a test that gives a target its share of the cases. A failed case is shrunk and printed with the command that
 * runs it again.
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
  // The first batch loads and compiles the shared code.
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

/** Returns the milliseconds of the longest case. Throws when a case fails. */
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
    // Otherwise the first case of a run prefers small values.
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

/** Prints the progress directly, because vitest prints a file's output at its end. */
function progressOf(name: string, cases: number): (done: number) => void {
  const everyMs = 1000 * numberFrom(FUZZ.progressSeconds, Number.POSITIVE_INFINITY)
  let next = performance.now() + everyMs
  return (done) => {
    if (performance.now() < next) return
    next = performance.now() + everyMs
    writeSync(2, `     ${name}: ${done} of ${cases}\n`)
  }
}

/** The seed of a batch does not depend on the other targets of the run. */
function seedOf(seed: number, name: string, index: number): number {
  let hash = seed ^ Math.imul(index + 1, 0x9e3779b1)
  for (const character of name) hash = Math.imul(hash ^ character.charCodeAt(0), 0x01000193)
  return hash | 0
}

function numberFrom(variable: string, byDefault: number): number {
  const text = process.env[variable]
  return text === undefined ? byDefault : Number(text)
}

async function memory(): Promise<{ readonly used: number; readonly rss: number }> {
  setFlagsFromString('--expose-gc')
  // A new context has the function that the flag adds.
  const collect: () => void = runInNewContext('gc')
  // Memory that finalizers release, such as of signals, goes in a later collection.
  for (let count = 0; count < 3; count++) {
    collect()
    await turn()
  }
  const { heapUsed, arrayBuffers, rss } = process.memoryUsage()
  return { used: heapUsed + arrayBuffers, rss }
}
