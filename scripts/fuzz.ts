import { join } from 'node:path'
import { messageOf } from '../src/base/errors.ts'
import { projectRoot, temporaryRoot } from '../src/build/project.ts'
import { makeTemporaryFolder, removeTemporaryFolder } from '../src/build/temporary-folder.ts'
import { summaryLine } from './test/counts.ts'
import { FUZZ, fuzzTable, readFuzzRun } from './test/fuzz-run.ts'
import { runVitest } from './test/run-vitest.ts'

/**
 * `npm run fuzz -- [--cases N] [--seed N] [--replay FILE/TARGET:SEED:PATH] [PATTERN]…`: runs the fuzz group with any number
 * of cases, or one case again. The exit status is 1 when a target failed.
 */
async function main(folder: string): Promise<number> {
  const { cases, seed, replay, patterns } = readFuzzRun(
    process.argv.slice(2),
    Math.floor(Math.random() * 0x7fffffff),
  )
  console.log(replay === undefined ? `fuzz: ${cases} cases, --seed ${seed}` : `fuzz: ${replay}`)
  const figures = join(folder, 'fuzz-figures')
  const start = performance.now()
  const counts = await runVitest({
    root: projectRoot,
    project: 'fuzz',
    patterns,
    write: (text) => process.stdout.write(text),
    env: {
      ...process.env,
      [FUZZ.cases]: String(cases),
      [FUZZ.seed]: String(seed),
      [FUZZ.replay]: replay,
      [FUZZ.figures]: figures,
      [FUZZ.progressSeconds]: '20',
    },
  })
  for (const line of fuzzTable(figures)) console.log(line)
  console.log(`minutes: ${((performance.now() - start) / 60_000).toFixed(1)}, --seed ${seed}`)
  console.log(summaryLine(counts))
  return counts.failed > 0 ? 1 : 0
}

const folder = makeTemporaryFolder(temporaryRoot)
try {
  process.exitCode = await main(folder)
} catch (error) {
  console.error(`fuzz: ${messageOf(error)}`)
  process.exitCode = 2
} finally {
  removeTemporaryFolder(folder)
}
