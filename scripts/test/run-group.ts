import { join } from 'node:path'
import { parseArgs } from 'node:util'
import { createVitest } from 'vitest/node'
import { countingReporter, OUT_OF_TIME } from './reporter.ts'
import { mayRunOnceMore } from './test-files.ts'

/** The delay of the last messages from vitest's workers about begun tests. */
const LAST_NEWS_MS = 500

/**
 * `run-group.ts [--coverage FOLDER] [--once] PROJECT [PATTERN]…`: runs one vitest project of the current folder and sends its
 * `Counts` to the parent process. Its own process keeps a crash or leftover work from ending the whole run. Suites that fail
 * run once more (docs/testing.md).
 */
const { positionals, values } = parseArgs({
  allowPositionals: true,
  options: { coverage: { type: 'string' }, once: { type: 'boolean', default: false } },
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
const failed = values.once ? [] : failedFiles().filter(({ path }) => mayRunOnceMore(path))
const onceMore = failed.map(({ path }) => path)
if (failed.length > 0) {
  console.log(`once more: ${onceMore.join(', ')}`)
  await vitest.runTestSpecifications(
    failed.flatMap(({ path, suites }) =>
      vitest
        .getModuleSpecifications(join(root, path))
        .map(({ project, moduleId }) =>
          project.createSpecification(moduleId, suites && { testNamePattern: beginsWith(suites) }),
        ),
    ),
  )
}
process.send?.({ ...counts(), onceMore }, () => vitest.exit(true))

function beginsWith(names: readonly string[]): RegExp {
  const texts = names.map((name) => name.replace(/[.*+?^${}()|[\]\\/]/g, '\\$&'))
  return new RegExp(`^(${texts.join('|')}) `)
}
