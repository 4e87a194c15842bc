/** The groups of a test run, in order. All except `check` are vitest projects. */
export const GROUPS = ['check', 'unit', 'host', 'hostile', 'fuzz', 'kills', 'vm'] as const

export type Group = (typeof GROUPS)[number]

/** The groups of a lane run in order, beside the other lane. */
export const LANES: readonly (readonly Group[])[] = [['check', 'unit', 'host'], ['vm']]

/** The other groups, in the order in which a lane that has ended takes them. */
export const LAST_GROUPS: readonly Group[] = ['hostile', 'kills', 'fuzz']

export interface Selection {
  readonly groups: readonly Group[]
  readonly patterns: readonly string[]
  readonly times: number
}

/**
 * Reads `[--group NAME]… [--times N] [PATTERN]…`. A pattern without a group leaves out the checks, which have no files.
 * Throws an error that names the wrong word.
 */
export function readSelection(args: readonly string[]): Selection {
  const named: Group[] = []
  const patterns: string[] = []
  let times = 1
  const words = args[Symbol.iterator]()
  for (const word of words) {
    if (word === '--group') named.push(groupNamed(words.next().value))
    else if (word.startsWith('--group=')) named.push(groupNamed(word.slice('--group='.length)))
    else if (word === '--times') times = timesOf(words.next().value)
    else if (word.startsWith('--times=')) times = timesOf(word.slice('--times='.length))
    else if (word.startsWith('-')) throw new Error(`unknown option ${word}: want --group NAME or --times N`)
    else patterns.push(word)
  }
  const byDefault = GROUPS.filter((group) => patterns.length === 0 || group !== 'check')
  const groups = named.length === 0 ? byDefault : GROUPS.filter((group) => named.includes(group))
  return { groups, patterns, times }
}

function timesOf(text: string | undefined): number {
  if (text !== undefined && /^[1-9]\d{0,3}$/.test(text)) return Number(text)
  throw new Error(`--times ${text ?? ''}: want a number from 1 to 9999`)
}

function groupNamed(name: string | undefined): Group {
  const group = GROUPS.find((known) => known === name)
  if (group === undefined) throw new Error(`--group ${name ?? ''}: the groups are ${GROUPS.join(', ')}`)
  return group
}
