import { numberAfter } from './number-option.ts'

export const COMMANDS_A_CASE = 25

/** The model's share of 1,000 cases of the fuzz group. */
export const MODEL_SHARE = 2

export interface ModelRun {
  /** Cases of the whole fuzz group; the model has its share of them. */
  readonly cases: number
  readonly seed: number
}

const USAGE = 'want --commands N [--seed N]'

/** Throws an error that names the wrong word. */
export function readModelRun(args: readonly string[], randomSeed: number): ModelRun {
  let commands: number | undefined
  let seed = randomSeed
  const words = args[Symbol.iterator]()
  for (const word of words) {
    if (word === '--commands') commands = numberAfter(word, words.next().value, 10_000_000)
    else if (word === '--seed') seed = numberAfter(word, words.next().value, 0x7fffffff)
    else throw new Error(`unknown option ${word}: ${USAGE}`)
  }
  if (commands === undefined) throw new Error(`--commands: is missing, ${USAGE}`)
  return { cases: (Math.ceil(commands / COMMANDS_A_CASE) * 1000) / MODEL_SHARE, seed }
}
