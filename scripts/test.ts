import { messageOf } from '../src/base/errors.ts'
import { buildAgent } from './build-agent.ts'
import { projectRoot } from './cache.ts'
import { printCheck, runChecks } from './check.ts'
import { type Counts, NOTHING, oneEntry, sum, summaryLine } from './test/counts.ts'
import { type Group, readSelection, type Selection } from './test/groups.ts'
import { runVitest } from './test/run-vitest.ts'
import { testFiles } from './test/test-files.ts'

/**
 * `npm test [-- [--group check|unit|host|vm]… [PATTERN]…]`: everything, or what is asked for. The last line is
 * `N passed, N failed`, with `, N skipped` when there are any; the exit status is 1 when anything failed.
 */
async function main(): Promise<number> {
  const selection = onlyWithFiles(readSelection(process.argv.slice(2)))
  const parts: Counts[] = []
  const minutes: string[] = []
  for (const group of selection.groups) {
    console.log(`\n== ${group}`)
    const start = performance.now()
    parts.push(await runGroup(group, selection))
    minutes.push(`${group} ${((performance.now() - start) / 60_000).toFixed(1)}`)
  }
  const total = sum(parts)
  console.log(`\nminutes: ${minutes.join(', ')}`)
  for (const { name, reason } of total.skipped) console.log(`skipped: ${name}: ${reason}`)
  console.log(summaryLine(total))
  return total.failed > 0 ? 1 : 0
}

/** Leaves out the groups in which no file matches. */
function onlyWithFiles(selection: Selection): Selection {
  const { groups, patterns } = selection
  if (patterns.length === 0) return selection
  const chosen = groups.filter((group) => testFiles(projectRoot, group, patterns).length > 0)
  if (chosen.length === 0) throw new Error(`no test file's path contains ${patterns.join(' or ')}`)
  return { groups: chosen, patterns }
}

async function runGroup(group: Group, selection: Selection): Promise<Counts> {
  if (group === 'check') return sum((await runChecks(printCheck)).map((result) => oneEntry(result.ok)))
  if (group !== 'unit') {
    const built = await build()
    if (built.failed > 0) return built
  }
  const counts = await runVitest({
    root: projectRoot,
    project: group,
    patterns: selection.patterns,
    write: (text) => process.stdout.write(text),
  })
  const ran = counts.passed + counts.failed > 0
  if (ran || group !== 'vm' || selection.patterns.length > 0 || process.env.CI !== 'true') return counts
  console.log('FAIL no test of this group ran, and CI must run them')
  return sum([counts, oneEntry(false)])
}

/** The agent that these tests run, built once for all of them. Only a failure is an entry of the run. */
async function build(): Promise<Counts> {
  try {
    await buildAgent()
    return NOTHING
  } catch (error) {
    console.log(`FAIL build: ${messageOf(error)}`)
    return oneEntry(false)
  }
}

try {
  process.exitCode = await main()
} catch (error) {
  console.error(`test: ${messageOf(error)}`)
  process.exitCode = 2
}
