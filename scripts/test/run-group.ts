import { parseArgs } from 'node:util'
import { startVitest } from 'vitest/node'
import { countingReporter } from './reporter.ts'

/**
 * `run-group.ts [--coverage FOLDER] PROJECT [PATTERN]…`: runs one vitest project of the current folder and sends its `Counts` to the
 * parent process. A process of its own, so that tests which crash it or leave something running cannot take the
 * whole run with them.
 */
const { positionals, values } = parseArgs({
  allowPositionals: true,
  options: { coverage: { type: 'string' } },
})
const [project = '', ...patterns] = positionals
const { reporter, counts } = countingReporter((line) => console.log(line))
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
