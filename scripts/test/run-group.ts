import { parseArgs } from 'node:util'
import { startVitest } from 'vitest/node'
import { countingReporter, OUT_OF_TIME } from './reporter.ts'

/** vitest's workers tell of the tests that they begin with some delay. */
const LAST_NEWS_MS = 500

/**
 * `run-group.ts [--coverage FOLDER] PROJECT [PATTERN]…`: runs one vitest project of the current folder and sends its `Counts` to the
 * parent process. It runs in a process of its own, so that tests that crash it or leave work running do not end the
 * whole run.
 */
const { positionals, values } = parseArgs({
  allowPositionals: true,
  options: { coverage: { type: 'string' } },
})
const [project = '', ...patterns] = positionals
const { reporter, counts, outOfTime } = countingReporter((line) => console.log(line))
process.on('message', (message) => {
  if (message !== OUT_OF_TIME) return
  setTimeout(() => {
    outOfTime()
    process.send?.(counts(), () => process.exit(1))
  }, LAST_NEWS_MS)
})
const vitest = await startVitest('test', patterns, {
  root: process.cwd(),
  project: [project],
  watch: false,
  passWithNoTests: true,
  reporters: [reporter],
  coverage: {
    enabled: values.coverage !== undefined,
    provider: 'v8',
    include: ['src/**/*.ts'],
    exclude: ['src/gen/**'],
    reporter: ['json-summary'],
    reportsDirectory: values.coverage ?? '',
  },
})
process.send?.(counts(), () => vitest.exit(true))
