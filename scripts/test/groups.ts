/** The parts of a test run, in their order. All but `check` are projects of vitest. */
export const GROUPS = ['check', 'unit', 'host', 'vm'] as const

export type Group = (typeof GROUPS)[number]

/** Groups that run at the same time as those of the other lanes, in their order. */
export const LANES: readonly (readonly Group[])[] = [['check', 'unit', 'host'], ['vm']]

/** What a run is asked to do. */
export interface Selection {
  readonly groups: readonly Group[]
  /** Parts of test files' paths; none means all files. */
  readonly patterns: readonly string[]
}

/**
 * Reads `[--group NAME]… [PATTERN]…`. A pattern without a group leaves the checks out: they know no files. Throws a
 * sentence that names the wrong word.
 */
export function readSelection(args: readonly string[]): Selection {
  const named: Group[] = []
  const patterns: string[] = []
  const words = args[Symbol.iterator]()
  for (const word of words) {
    if (word === '--group') named.push(groupNamed(words.next().value))
    else if (word.startsWith('--group=')) named.push(groupNamed(word.slice('--group='.length)))
    else if (word.startsWith('-')) throw new Error(`unknown option ${word}: only --group NAME is known`)
    else patterns.push(word)
  }
  const byDefault = GROUPS.filter((group) => patterns.length === 0 || group !== 'check')
  const groups = named.length === 0 ? byDefault : GROUPS.filter((group) => named.includes(group))
  return { groups, patterns }
}

function groupNamed(name: string | undefined): Group {
  const group = GROUPS.find((known) => known === name)
  if (group === undefined) throw new Error(`--group ${name ?? ''}: the groups are ${GROUPS.join(', ')}`)
  return group
}
