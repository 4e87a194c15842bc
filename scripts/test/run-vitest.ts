import { fork } from 'node:child_process'
import { join } from 'node:path'
import { type Counts, oneEntry } from './counts.ts'
import { OUT_OF_TIME } from './reporter.ts'

/** The time that a late test process has to name its running tests and to end. */
const LAST_WORDS_MS = 20_000

/** The time for output after the test process ended: processes that its tests left may hold it open. */
const LAST_OUTPUT_MS = 5_000

/**
 * Runs one vitest project in its own process. A process that ends before it sends its counts is one failure. A process
 * that runs when `late` fires names its unfinished tests, ends, and is one failure too.
 */
export function runVitest(run: {
  readonly root: string
  readonly project: string
  readonly patterns: readonly string[]
  /** The folder for the coverage summary of `src`; written only when all tests pass. */
  readonly coverage?: string
  /** Failures are what the run looks for: nothing runs once more. */
  readonly once?: boolean
  readonly write: (text: string) => void
  readonly env?: NodeJS.ProcessEnv
  readonly late?: AbortSignal
}): Promise<Counts> {
  const program = join(import.meta.dirname, 'run-group.ts')
  const coverage = run.coverage === undefined ? [] : ['--coverage', run.coverage]
  const once = run.once === true ? ['--once'] : []
  const child = fork(program, [...coverage, ...once, run.project, ...run.patterns], {
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
