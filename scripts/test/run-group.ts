import { startVitest } from 'vitest/node'
import { countingReporter } from './reporter.ts'

/**
 * `run-group.ts PROJECT [PATTERN]…`: runs one vitest project of the current folder and sends its `Counts` to the
 * parent process. A process of its own, so that tests which crash it or leave something running cannot take the
 * whole run with them.
 */
const [project = '', ...patterns] = process.argv.slice(2)
const { reporter, counts } = countingReporter((line) => console.log(line))
const vitest = await startVitest('test', patterns, {
  root: process.cwd(),
  project: [project],
  watch: false,
  passWithNoTests: true,
  reporters: [reporter],
})
process.send?.(counts(), () => vitest.exit(true))
