import { relative } from 'node:path'
import type { Reporter, SerializedError, TestCase, TestModule, TestSuite } from 'vitest/node'
import { type Counts, NOTHING, type SkippedTest, sum } from './counts.ts'
import { bootsGuests } from './test-files.ts'

export const OUT_OF_TIME = 'out of time'

export interface FailedFile {
  readonly path: string
  /** The outermost suites with all of its failures; undefined when something failed outside of them. */
  readonly suites: readonly string[] | undefined
}

export interface CountingReporter {
  readonly reporter: Reporter
  counts(): Counts
  failedFiles(): readonly FailedFile[]
  /** Names the running tests, or the files with running hooks, and counts them as failed. */
  outOfTime(): void
}

/**
 * Writes one line for each file and every failure in full. A second run of a file, or of its failed suites, replaces what was
 * counted of them.
 */
export function countingReporter(root: string, write: (line: string) => void): CountingReporter {
  const files = new Map<string, Counts>()
  const firstRuns = new Map<string, FirstRun>()
  let others = NOTHING
  const addFailures = (failed: number, path?: string) => {
    const file = path === undefined ? undefined : files.get(path)
    if (path === undefined || file === undefined) others = { ...others, failed: others.failed + failed }
    else files.set(path, { ...file, failed: file.failed + failed })
    // The error may be of any suite.
    if (path !== undefined) firstRuns.set(path, WHOLE)
  }
  const runningModules = new Set<TestModule>()
  const runningTests = new Set<TestCase>()
  const reporter: Reporter = {
    onTestModuleStart(module) {
      runningModules.add(module)
    },
    onTestCaseReady(test) {
      runningTests.add(test)
    },
    onTestCaseResult(test) {
      runningTests.delete(test)
    },
    onTestModuleEnd(module) {
      runningModules.delete(module)
      const { suites, others: kept } = firstRuns.get(module.relativeModuleId) ?? WHOLE
      const isAgain = (test: TestCase) => suites?.includes(outermostSuite(test)?.name ?? '') ?? true
      const counts = withSeconds(module, sum([countTests(module, isAgain), kept, missing(module, suites)]))
      firstRuns.set(module.relativeModuleId, firstRunOf(module))
      write(moduleLine(module, counts))
      for (const failure of failuresOf(module)) write(failure)
      files.set(module.relativeModuleId, counts)
    },
    onTestRunEnd(_modules, unhandledErrors, reason) {
      for (const error of unhandledErrors) {
        const file = fileOf(error)
        const path = file === undefined ? undefined : relative(root, file)
        write(describeFailure(`outside of any test${path === undefined ? '' : ` of ${path}`}`, [error]))
        // Elsewhere it may be of an earlier file in the same process.
        addFailures(1, path !== undefined && bootsGuests(path) ? path : undefined)
      }
      if (reason === 'interrupted') {
        write('FAIL the run was interrupted')
        addFailures(1)
      }
    },
  }
  const outOfTime = () => {
    for (const module of runningModules) {
      const tests = [...runningTests].filter((test) => test.module === module)
      const names =
        tests.length > 0 ? tests.map((test) => test.fullName) : ['no test, but a hook or the file']
      for (const name of names) write(`FAIL ${module.relativeModuleId}: out of time in ${name}`)
    }
    addFailures(Math.max(1, runningModules.size))
  }
  const counts = () => sum([...files.values(), others])
  const failedFiles = () =>
    [...files]
      .filter(([, { failed }]) => failed > 0)
      .map(([path]) => ({ path, suites: firstRuns.get(path)?.suites }))
  return { reporter, counts, failedFiles, outOfTime }
}

function fileOf(error: SerializedError): string | undefined {
  return typeof error.VITEST_TEST_PATH === 'string' ? error.VITEST_TEST_PATH : undefined
}

interface FirstRun extends Pick<FailedFile, 'suites'> {
  /** Of the other suites. */
  readonly others: Counts
}

const WHOLE: FirstRun = { suites: undefined, others: NOTHING }

function firstRunOf(module: TestModule): FirstRun {
  const failed = [...module.children.allTests()].filter((test) => test.result().state === 'failed')
  const suites = [...failed, ...brokenContainers(module)].map(outermostSuite)
  const names = suites.flatMap((suite) => (suite === undefined ? [] : [suite.name]))
  if (names.length < suites.length) return WHOLE
  const others = countTests(module, (test) => !names.includes(outermostSuite(test)?.name ?? ''))
  return { suites: [...new Set(names)], others: { ...others, failed: 0 } }
}

/** Of the suites that were to run again, those that the file does not have any more: their failures stand. */
function missing(module: TestModule, suites: readonly string[] = []): Counts {
  const present = new Set([...module.children.allTests()].map((test) => outermostSuite(test)?.name))
  return { ...NOTHING, failed: suites.filter((name) => !present.has(name)).length }
}

function outermostSuite(entity: TestCase | TestSuite | TestModule): TestSuite | undefined {
  if (entity.type === 'module') return undefined
  if (entity.parent.type === 'suite') return outermostSuite(entity.parent)
  return entity.type === 'suite' ? entity : undefined
}

function countTests(module: TestModule, isCounted: (test: TestCase) => boolean): Counts {
  const tests = [...module.children.allTests()].filter(isCounted)
  const ended = (state: string) => tests.filter((test) => test.result().state === state)
  return {
    ...NOTHING,
    passed: ended('passed').length,
    failed: ended('failed').length + brokenContainers(module).length,
    skipped: [...ended('skipped'), ...ended('pending')].map(skippedTest),
  }
}

function withSeconds(module: TestModule, counts: Counts): Counts {
  return {
    ...counts,
    files: [{ path: module.relativeModuleId, seconds: module.diagnostic().duration / 1000 }],
  }
}

function skippedTest(test: TestCase): SkippedTest {
  const result = test.result()
  const note = result.state === 'skipped' ? result.note : undefined
  return { name: `${test.module.relativeModuleId} > ${test.fullName}`, reason: note ?? 'no reason given' }
}

function brokenContainers(module: TestModule): readonly (TestModule | TestSuite)[] {
  return [module, ...module.children.allSuites()].filter((container) => container.errors().length > 0)
}

function moduleLine(module: TestModule, counts: Counts): string {
  const seconds = (module.diagnostic().duration / 1000).toFixed(1)
  const skipped = counts.skipped.length > 0 ? `, ${counts.skipped.length} skipped` : ''
  const mark = counts.failed > 0 ? 'FAIL' : 'ok  '
  return `${mark} ${module.relativeModuleId}: ${counts.passed} passed${skipped} (${seconds} s)`
}

function failuresOf(module: TestModule): readonly string[] {
  const containers = brokenContainers(module).map((container) =>
    describeFailure(container.type === 'suite' ? container.fullName : 'the file', container.errors()),
  )
  const tests = [...module.children.allTests()]
    .filter((test) => test.result().state === 'failed')
    .map((test) => describeFailure(test.fullName, test.result().errors ?? []))
  return [...containers, ...tests]
}

function describeFailure(name: string, errors: readonly SerializedError[]): string {
  return [`--- ${name}`, ...errors.map(describeError), '---'].join('\n')
}

function describeError(error: SerializedError): string {
  const frames = (error.stack ?? '')
    .split('\n')
    .filter((line) => line.trimStart().startsWith('at ') && !line.includes('/node_modules/'))
  const difference = error.diff === undefined ? [] : [String(error.diff)]
  return [`${error.name ?? 'Error'}: ${error.message}`, ...difference, ...frames].join('\n')
}
