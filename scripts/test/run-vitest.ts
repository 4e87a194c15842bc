import { fork } from 'node:child_process'
import { join } from 'node:path'
import { type Counts, oneEntry } from './counts.ts'

/**
 * Runs one project of vitest in a process of its own. A process that ends without having sent its counts is one failure.
 */
export function runVitest(run: {
  /** The folder with the configuration of vitest. */
  readonly root: string
  readonly project: string
  /** Parts of test files' paths; none means all files. */
  readonly patterns: readonly string[]
  /** A folder to be filled with a summary of which lines of `src` the tests ran; only when all of them pass. */
  readonly coverage?: string
  /** Gets the output, in pieces of any size. */
  readonly write: (text: string) => void
  /** The environment; this process's own unless given. */
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
  // The one sender is run-group.ts, and Counts is all it sends.
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
