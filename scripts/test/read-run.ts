export interface Run<Name extends string> {
  /** Those that are named. */
  readonly numbers: ReadonlyMap<Name, number>
  /** Random unless it is named. */
  readonly seed: number
  readonly patterns: readonly string[]
}

const LARGEST_NUMBER = 1_000_000_000
const LARGEST_SEED = 0x7fffffff

/**
 * Reads the words of a long run: `--NAME N` for each of `names` and for the seed, and patterns where `others`, the usage of all
 * other words, is given. Throws an error that names the wrong word.
 */
export function readRun<Name extends string>(
  args: readonly string[],
  names: readonly Name[],
  others = '',
): Run<Name> {
  const numbers = new Map<Name, number>()
  let seed = randomSeed()
  const patterns: string[] = []
  const words = args[Symbol.iterator]()
  for (const word of words) {
    const name = names.find((each) => word === `--${each}`)
    if (name !== undefined) numbers.set(name, numberOf(word, words.next().value, LARGEST_NUMBER))
    else if (word === '--seed') seed = numberOf(word, words.next().value, LARGEST_SEED)
    else if (word.startsWith('-') || others === '') {
      const usage = [...[...names, 'seed'].map((each) => `[--${each} N]`), others].join(' ').trim()
      throw new Error(`unknown option ${word}: want ${usage}`)
    } else patterns.push(word)
  }
  return { numbers, seed, patterns }
}

function numberOf(option: string, text: string | undefined, largest: number): number {
  if (text !== undefined && /^\d{1,10}$/.test(text) && Number(text) <= largest) return Number(text)
  throw new Error(`${option} ${text ?? ''}: want a number from 0 to ${largest}`)
}

export function randomSeed(): number {
  return Math.floor(Math.random() * LARGEST_SEED)
}
