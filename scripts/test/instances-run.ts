import { numberAfter } from './number-option.ts'

export const INSTANCES = {
  lives: 'MICROVM_INSTANCE_LIVES',
  /** The seed of the random choices. */
  seed: 'MICROVM_INSTANCE_SEED',
} as const

/** What `npm test` takes. */
export const DEFAULT_LIVES = 6

export interface InstancesRun {
  readonly lives: number
  readonly seed: number
}

/** Throws on a wrong word. */
export function readInstancesRun(args: readonly string[], randomSeed: number): InstancesRun {
  let run = { lives: 100, seed: randomSeed }
  const words = args[Symbol.iterator]()
  for (const word of words) {
    if (word === '--lives') run = { ...run, lives: numberAfter(word, words.next().value, 1_000_000) }
    else if (word === '--seed') run = { ...run, seed: numberAfter(word, words.next().value, 0x7fffffff) }
    else throw new Error(`unknown option ${word}: want [--lives N] [--seed N]`)
  }
  return run
}
