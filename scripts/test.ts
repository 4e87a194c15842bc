import { join } from 'node:path'
import { messageOf } from '../src/base/errors.ts'
import { buildAgent } from '../src/build/agent.ts'
import { buildRoot, projectRoot, temporaryRoot } from '../src/build/project.ts'
import { makeTemporaryFolder, removeTemporaryFolder } from '../src/build/temporary-folder.ts'
import { ensureContainerRoot } from '../src/image/container-root.ts'
import { ensureImage } from '../src/image/ensure-image.ts'
import { ensurePolicyAddon } from '../src/image/policy-addon.ts'
import { checkCounts, checkText, runChecks } from './check.ts'
import { ATTACK_FIGURES_VARIABLE, attackTable } from './test/attack-figures.ts'
import { type Counts, oneEntry, slowestLines, sum, summaryLine } from './test/counts.ts'
import { COVERAGE_FLOORS, judgeCoverage, readCoverage } from './test/coverage.ts'
import { FUZZ, fuzzTable } from './test/fuzz-run.ts'
import { type Group, LANES, LAST_GROUPS, readSelection, type Selection } from './test/groups.ts'
import { KILLS, killsTable } from './test/kills-run.ts'
import { type OutputPart, orderedOutput } from './test/ordered-output.ts'
import { runVitest } from './test/run-vitest.ts'
import { bootsGuests, testFiles } from './test/test-files.ts'

const AGENT_GROUPS: readonly Group[] = ['host', 'hostile', 'kills', 'vm']

const GUEST_GROUPS: readonly Group[] = ['hostile', 'vm']

const SLOWEST_FILES = 10

/** Of the images: a tenth larger than those that are given away, and built a minute sooner. */
const ZSTD_LEVEL = '9'

/** Tests that still run then count as hung and fail with their names. A CI run ends at 90 minutes without any names. */
const LATE_MS = 70 * 60_000

interface GroupResult {
  readonly counts: Counts
  readonly minutes: number
}

/**
 * `npm test [-- [--group check|unit|host|hostile|fuzz|kills|vm]… [--times N] [PATTERN]…]`: runs all tests, or those
 * requested. The last line is `N passed, N failed`, with `, N skipped` when there are any; the exit status is 1 when
 * anything failed.
 */
async function main(folder: string): Promise<number> {
  process.env.MICROVM_ZSTD_LEVEL ??= ZSTD_LEVEL
  const start = performance.now()
  const selection = onlyWithFiles(readSelection(process.argv.slice(2)))
  const attackFigures = join(folder, 'attack-figures')
  const fuzzFigures = join(folder, 'fuzz-figures')
  const killsFigures = join(folder, 'kills-figures')
  const environment = {
    [ATTACK_FIGURES_VARIABLE]: attackFigures,
    [FUZZ.figures]: fuzzFigures,
    [KILLS.figures]: killsFigures,
  }
  const late = AbortSignal.timeout(LATE_MS * selection.times)
  const results = await runGroups(selection, environment, late)
  const total = sum([...results.values()].map(({ counts }) => counts))
  const minutes = [...results].map(([group, result]) => `${group} ${result.minutes.toFixed(1)}`)
  console.log(`\nminutes: ${minutes.join(', ')}; in all ${minutesSince(start).toFixed(1)}`)
  for (const line of slowestLines(total.files, SLOWEST_FILES)) console.log(line)
  for (const line of attackTable(attackFigures)) console.log(line)
  for (const line of fuzzTable(fuzzFigures)) console.log(line)
  for (const line of killsTable(killsFigures)) console.log(line)
  for (const path of total.onceMore) console.log(`ran once more: ${path}`)
  for (const { name, reason } of total.skipped) console.log(`skipped: ${name}: ${reason}`)
  console.log(summaryLine(total))
  return total.failed > 0 ? 1 : 0
}

/** Leaves out the groups in which no file matches. */
function onlyWithFiles(selection: Selection): Selection {
  const { groups, patterns, times } = selection
  if (patterns.length === 0) return selection
  const chosen = groups.filter((group) => testFiles(projectRoot, group, patterns).length > 0)
  if (chosen.length === 0) throw new Error(`no test file's path contains ${patterns.join(' or ')}`)
  return { groups: chosen, patterns, times }
}

async function runGroups(
  selection: Selection,
  environment: NodeJS.ProcessEnv,
  late: AbortSignal,
): Promise<ReadonlyMap<Group, GroupResult>> {
  const { groups } = selection
  const parts = orderedOutput(groups.length, (text) => process.stdout.write(text))
  const needAgent = groups.some((group) => AGENT_GROUPS.includes(group))
  const built = needAgent ? build() : Promise.resolve(undefined)
  const results = new Map<Group, GroupResult>()
  const last = [...LAST_GROUPS]
  const runLane = async (lane: readonly Group[]) => {
    const own = [...lane]
    for (let group = own.shift(); group !== undefined; group = own.shift() ?? last.shift()) {
      const part = parts[groups.indexOf(group)]
      if (part === undefined) continue
      const start = performance.now()
      part.write(`\n== ${group}\n`)
      const failure = AGENT_GROUPS.includes(group) ? await built : undefined
      const counts =
        failure === undefined ? await runGroup(group, selection, environment, part, late) : oneEntry(false)
      if (failure !== undefined) part.write(`FAIL build: ${failure}\n`)
      part.end()
      results.set(group, { counts, minutes: minutesSince(start) })
    }
  }
  await Promise.all(LANES.map(runLane))
  return results
}

async function runGroup(
  group: Group,
  { patterns, times }: Selection,
  environment: NodeJS.ProcessEnv,
  { write }: OutputPart,
  late: AbortSignal,
): Promise<Counts> {
  if (group === 'check') {
    return sum((await runChecks((result) => write(checkText(result)))).map(checkCounts))
  }
  const files = testFiles(projectRoot, group, patterns.length > 0 ? patterns : [''])
  if (files.some(bootsGuests)) await prepareImage(write)
  if (AGENT_GROUPS.includes(group) && patterns.length === 0) await preparePolicyImage(write)
  const measured = group === 'unit' && patterns.length === 0
  const coverage = measured ? join(buildRoot, 'coverage') : undefined
  const counts = sum(
    await inTurn(times, () =>
      runVitest({
        root: projectRoot,
        project: group,
        patterns,
        write,
        env: { ...process.env, ...environment },
        late,
        once: times > 1,
        ...(coverage && { coverage }),
      }),
    ),
  )
  if (coverage !== undefined && counts.failed === 0) {
    if (counts.onceMore.length === 0) return sum([counts, coverageCounts(coverage, write)])
    write('coverage: not judged, since its last report is of the files that ran once more\n')
  }
  const ran = counts.passed + counts.failed > 0
  if (ran || !GUEST_GROUPS.includes(group) || patterns.length > 0 || process.env.CI !== 'true') return counts
  write('FAIL no test of this group ran, and CI must run them\n')
  return sum([counts, oneEntry(false)])
}

async function inTurn<T>(times: number, run: () => Promise<T>): Promise<T[]> {
  const results: T[] = []
  for (let turn = 0; turn < times; turn++) results.push(await run())
  return results
}

function coverageCounts(reports: string, write: (text: string) => void): Counts {
  const { ok, lines } = judgeCoverage(readCoverage(projectRoot, reports), COVERAGE_FLOORS)
  write(`${lines.join('\n')}\n`)
  return oneEntry(ok)
}

async function build(): Promise<string | undefined> {
  try {
    await buildAgent()
    return undefined
  } catch (error) {
    return messageOf(error)
  }
}

let guestImages: Promise<unknown> | undefined

/** Concurrent test files would otherwise each build the image, within their own time limits. */
async function prepareImage(write: (text: string) => void): Promise<void> {
  const progress = (line: string) => write(`${line}\n`)
  const build = async () => {
    for (const form of ['disk', 'partitioned', 'initrd'] as const) await ensureImage({ form, progress })
    await ensureContainerRoot(progress)
  }
  try {
    guestImages ??= build()
    await guestImages
  } catch (error) {
    // The tests decide whether this is a failure: a machine that cannot boot a microVM skips them.
    progress(`no guest image: ${messageOf(error)}`)
  }
}

let policyImage: Promise<unknown> | undefined

async function preparePolicyImage(write: (text: string) => void): Promise<void> {
  const progress = (line: string) => write(`${line}\n`)
  try {
    policyImage ??= ensurePolicyAddon(progress).then(() => ensureImage({ policy: true, progress }))
    await policyImage
  } catch (error) {
    // Without policy.node the tests are skipped, or fail on CI.
    progress(`no policy.node: ${messageOf(error)}`)
  }
}

function minutesSince(start: number): number {
  return (performance.now() - start) / 60_000
}

const folder = makeTemporaryFolder(temporaryRoot)
try {
  process.exitCode = await main(folder)
} catch (error) {
  console.error(`test: ${messageOf(error)}`)
  process.exitCode = 2
} finally {
  removeTemporaryFolder(folder)
}
