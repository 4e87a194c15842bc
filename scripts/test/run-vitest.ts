import { fork } from 'node:child_process'
import { join } from 'node:path'
import { type Counts, oneEntry } from './counts.ts'

/**
 * Runs one vitest project in a process of its own. A process that ends before it sends its counts is one failure.
 */
export function runVitest(run: {
  /** The folder with the configuration of vitest. */
  readonly root: string
  readonly project: string
  /** Parts of the paths of test files; empty for all files. */
  readonly patterns: readonly string[]
  /** The folder for the summary of the lines of `src` that the tests ran; written only when all tests pass. */
  readonly coverage?: string
  /** Receives the output, in pieces of any size. */
  readonly write: (text: string) => void
  /** The environment; by default that of this process. */
  readonly env?: NodeJS.ProcessEnv
}): Promise<Counts> {
  const program = join(import.meta.dirname, 'run-group.ts')
  const coverage = run.coverage === undefined ? [] : ['--coverage', run.coverage]
  const child = fork(program, [...coverage, run.project, ...run.patterns], {
    cwd: run.root,
    env: { ...(run.env ?? process.env), NO_COLOR: '1' },
    silent: true,
  })
  for (const stream of [child.stdout, child.stderr]) stream?.setEncoding('utf8').on('data', run.write)
  let counts: Counts | undefined
  // Only run-group.ts sends messages, and it sends only Counts.
  child.on('message', (message) => {
    counts = message as Counts
  })
  return new Promise((resolve) => {
    child.on('close', (code, signal) => {
      if (counts === undefined) run.write(`FAIL the test process ended early (${signal ?? `exit ${code}`})\n`)
      resolve(counts ?? oneEntry(false))
    })
  })
}
