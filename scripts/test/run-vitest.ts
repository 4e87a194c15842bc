import { fork } from 'node:child_process'
import { join } from 'node:path'
import { type Counts, oneEntry } from './counts.ts'
import { OUT_OF_TIME } from './reporter.ts'

/** How long the test process may take to name the tests that it is running, and to end. */
const LAST_WORDS_MS = 20_000

/** How long the output of an ended test process is waited for: processes that its tests have left may hold it open. */
const LAST_OUTPUT_MS = 5_000

/**
 * Runs one vitest project in a process of its own. A process that ends before it sends its counts is one failure; so is
 * one that runs when `late` fires, after which it names its unfinished tests and ends.
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
  /** Fires when the tests have taken too long. */
  readonly late?: AbortSignal
}): Promise<Counts> {
  const program = join(import.meta.dirname, 'run-group.ts')
  const coverage = run.coverage === undefined ? [] : ['--coverage', run.coverage]
  const child = fork(program, [...coverage, run.project, ...run.patterns], {
    cwd: run.root,
    env: { ...(run.env ?? process.env), NO_COLOR: '1' },
    silent: true,
  })
  const outputs = [child.stdout, child.stderr]
  for (const stream of outputs) stream?.setEncoding('utf8').on('data', run.write)
  let killer: NodeJS.Timeout | undefined
  const end = () => {
    child.send(OUT_OF_TIME)
    killer = setTimeout(() => child.kill('SIGKILL'), LAST_WORDS_MS)
  }
  if (run.late?.aborted === true) end()
  else run.late?.addEventListener('abort', end)
  let counts: Counts | undefined
  // Only run-group.ts sends messages, and it sends only Counts.
  child.on('message', (message) => {
    counts = message as Counts
  })
  return new Promise((resolve) => {
    let closer: NodeJS.Timeout | undefined
    child.on('exit', () => {
      clearTimeout(killer)
      run.late?.removeEventListener('abort', end)
      closer = setTimeout(() => {
        for (const stream of outputs) stream?.destroy()
      }, LAST_OUTPUT_MS)
    })
    child.on('close', (code, signal) => {
      clearTimeout(closer)
      if (counts === undefined) run.write(`FAIL the test process ended early (${signal ?? `exit ${code}`})\n`)
      resolve(counts ?? oneEntry(false))
    })
  })
}
