import { figuresTable } from './figures.ts'

/** Below the project's folder, so that Stryker finds the project's vitest. */
export const MUTATION_FOLDER = 'build/mutation'

/** The least share of mutants that the tests of a target must notice, in percent. */
const LEAST_SCORE = 80

export interface Target {
  readonly file: string
  readonly tests: readonly string[]
}

export const TARGETS: readonly Target[] = [
  {
    file: 'src/handlers/container/recovery-table.ts',
    tests: ['test/handlers/container/recovery-table.test.ts'],
  },
  { file: 'src/state/request-journal.ts', tests: ['test/state/request-journal.test.ts'] },
  {
    file: 'src/handlers/storage/references.ts',
    tests: [
      'test/handlers/storage/references.test.ts',
      'test/handlers/storage/restore-storage.test.ts',
      'test/handlers/storage/storage.test.ts',
    ],
  },
]

const HELD = 'the caller holds a reference, so there is an attachment'
const WHOLE = 'an entry without an attachment is in transition'
const NO_OWNER = 'an empty owner is written as one that is missing'
const DROPPED = "every outcome but 'written' counts as dropped"

/** Mutants that no test can notice, because they behave as the code does, by what they change. */
export const EQUIVALENT: Readonly<Record<string, Readonly<Record<string, string>>>> = {
  'src/state/request-journal.ts': {
    'call.number !== 0n => true': 'taking records nothing for number 0 either',
    '\'dropped\' => ""': DROPPED,
    'one < other => one <= other': 'the numbers differ',
    '{ response: undefined, outOfMemory: undefined, exit: undefined } => {}':
      'a field that is undefined is encoded as one that is missing',
  },
  'src/handlers/storage/references.ts': {
    '\'INTERNAL\' => ""': HELD,
    '`storage ${mountPoint}: not attached` => ``': HELD,
    'entry?.attachment === undefined => false': HELD,
    'entry?.attachment => entry.attachment': HELD,
    '{ newlyAttached: false } => {}': 'undefined counts as false',
    'attachment === undefined => false': WHOLE,
    'unused?.attachment?.stop => unused?.attachment.stop': WHOLE,
    'unused?.attachment?.onRemove => unused?.attachment.onRemove': WHOLE,
    'entry.shared !== unused.shared => true': 'the record is written once more as it is',
    "owner === '' => false": NO_OWNER,
    '\'\' => "Stryker was here!"': NO_OWNER,
  },
}

/** Reads `[PATTERN]…`. Throws an error that names the wrong word. */
export function readMutationRun(patterns: readonly string[]): readonly Target[] {
  for (const pattern of patterns) {
    if (!TARGETS.some(({ file }) => file.includes(pattern))) {
      throw new Error(`${pattern}: no target, want a part of ${TARGETS.map(({ file }) => file).join(', ')}`)
    }
  }
  const all = patterns.length === 0
  return TARGETS.filter(({ file }) => all || patterns.some((pattern) => file.includes(pattern)))
}

export function strykerOptions(targets: readonly Target[]): Readonly<Record<string, unknown>> {
  return {
    mutate: targets.map(({ file }) => file),
    testRunner: 'vitest',
    plugins: ['@stryker-mutator/vitest-runner'],
    vitest: { configFile: 'scripts/mutation/vitest.config.ts', related: false },
    coverageAnalysis: 'perTest',
    concurrency: 1,
    tempDirName: `${MUTATION_FOLDER}/sandbox`,
    ignorePatterns: ['build', 'dist'],
    reporters: ['progress-append-only', 'json'],
    jsonReporter: { fileName: `${MUTATION_FOLDER}/report.json` },
    allowConsoleColors: false,
    disableTypeChecks: false,
    // Stryker would rewrite it by the API of TypeScript, which version 7 does not have.
    tsconfigFile: 'none',
  }
}

/** The part of Stryker's report (mutation-testing-report-schema) that is read. */
export interface MutationReport {
  readonly files: Readonly<Record<string, { readonly source: string; readonly mutants: readonly Mutant[] }>>
}

interface Mutant {
  readonly status: string
  readonly replacement?: string
  readonly location: { readonly start: Place; readonly end: Place }
}

interface Place {
  readonly line: number
  readonly column: number
}

/** `ok` is false when a score is too low, or when a mutant that is called equivalent was noticed. */
export function mutationTable(
  report: MutationReport,
  targets: readonly Target[],
): { readonly lines: readonly string[]; readonly ok: boolean } {
  const results = targets.map(({ file }) => resultOf(file, report))
  const rows = results.map(({ file, total, left, score }) => {
    return [file, total, total - left.length, left.length, score.toFixed(1)] as const
  })
  const faults = results.flatMap(({ file, left, score }) => [
    ...(score < LEAST_SCORE ? [`${file}: score ${score.toFixed(1)}, want at least ${LEAST_SCORE}`] : []),
    ...Object.keys(EQUIVALENT[file] ?? {})
      .filter((change) => !left.some((mutant) => mutant.change === change))
      .map((change) => `${file}: noticed, so not equivalent: ${change}`),
  ])
  const survivors = results.flatMap(({ file, left }) =>
    left.map(({ line, change }) => {
      const reason = EQUIVALENT[file]?.[change]
      return `${file}:${line}: ${change}${reason === undefined ? '' : ` (equivalent: ${reason})`}`
    }),
  )
  const table = figuresTable('mutants:', [['file', 'mutants', 'noticed', 'survived', 'score'], ...rows])
  return { lines: [...survivors, ...table, ...faults], ok: faults.length === 0 }
}

function resultOf(file: string, { files }: MutationReport) {
  const { source, mutants } = files[file] ?? { source: '', mutants: [] }
  const left = mutants
    .filter(({ status }) => status === 'Survived' || status === 'NoCoverage')
    .map((mutant) => ({ line: mutant.location.start.line, change: changeOf(source, mutant) }))
  const noticed = mutants.filter(({ status }) => status === 'Killed' || status === 'Timeout').length
  const total = noticed + left.length
  return { file, total, left, score: total === 0 ? 0 : (100 * noticed) / total }
}

function changeOf(source: string, { location: { start, end }, replacement = '' }: Mutant): string {
  const lines = source.split('\n').slice(start.line - 1, end.line)
  lines.push((lines.pop() ?? '').slice(0, end.column - 1))
  lines.unshift((lines.shift() ?? '').slice(start.column - 1))
  return `${lines.join(' ')} => ${replacement}`.replace(/\s+/g, ' ')
}
