import { join } from 'node:path'
import { parseArgs } from 'node:util'
import { createVitest } from 'vitest/node'
import { countingReporter, OUT_OF_TIME } from './reporter.ts'
import { bootsGuests } from './test-files.ts'

/** vitest's workers tell of the tests that they begin with some delay. */
const LAST_NEWS_MS = 500

/**
 * `run-group.ts [--coverage FOLDER] PROJECT [PATTERN]…`: runs one vitest project of the current folder and sends its `Counts` to the
 * parent process. It runs in a process of its own, so that tests that crash it or leave work running do not end the
 * whole run. A file that boots guests and fails runs once more (docs/testing.md).
 */
const { positionals, values } = parseArgs({
  allowPositionals: true,
  options: { coverage: { type: 'string' } },
})
const [project = '', ...patterns] = positionals
const root = process.cwd()
const { reporter, counts, failedFiles, outOfTime } = countingReporter(root, (line) => console.log(line))
process.on('message', (message) => {
  if (message !== OUT_OF_TIME) return
  setTimeout(() => {
    outOfTime()
    process.send?.(counts(), () => process.exit(1))
  }, LAST_NEWS_MS)
})
const vitest = await createVitest('test', {
  root,
  project: [project],
  watch: false,
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
await vitest.start(patterns)
const onceMore = failedFiles().filter(bootsGuests)
if (onceMore.length > 0) {
  console.log(`once more: ${onceMore.join(', ')}`)
  await vitest.runTestSpecifications(
    onceMore.flatMap((path) => vitest.getModuleSpecifications(join(root, path))),
  )
}
process.send?.({ ...counts(), onceMore }, () => vitest.exit(true))
