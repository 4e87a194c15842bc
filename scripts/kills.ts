import { join } from 'node:path'
import { messageOf } from '../src/base/errors.ts'
import { buildAgent } from '../src/build/agent.ts'
import { projectRoot, temporaryRoot } from '../src/build/project.ts'
import { makeTemporaryFolder, removeTemporaryFolder } from '../src/build/temporary-folder.ts'
import { summaryLine } from './test/counts.ts'
import { KILLS, killsTable, readKillsRun } from './test/kills-run.ts'
import { runVitest } from './test/run-vitest.ts'

/**
 * `npm run kills -- [--kills N] [--steps N] [--lives N] [--seed N] [PATTERN]…`: runs the kills group with any number of kills.
 * The exit status is 1 when a test failed.
 */
async function main(folder: string): Promise<number> {
  const run = readKillsRun(process.argv.slice(2), Math.floor(Math.random() * 0x7fffffff))
  const { kills, steps, lives, seed, patterns } = run
  console.log(`kills: ${kills} at random, ${steps} at steps, ${lives} lives, --seed ${seed}`)
  await buildAgent()
  const figures = join(folder, 'kills-figures')
  const start = performance.now()
  const counts = await runVitest({
    root: projectRoot,
    project: 'kills',
    patterns,
    write: (text) => process.stdout.write(text),
    env: {
      ...process.env,
      [KILLS.kills]: String(kills),
      [KILLS.steps]: String(steps),
      [KILLS.lives]: String(lives),
      [KILLS.seed]: String(seed),
      [KILLS.figures]: figures,
      [KILLS.progressSeconds]: '20',
    },
  })
  for (const line of killsTable(figures)) console.log(line)
  console.log(`minutes: ${((performance.now() - start) / 60_000).toFixed(1)}, --seed ${seed}`)
  console.log(summaryLine(counts))
  return counts.failed > 0 ? 1 : 0
}

const folder = makeTemporaryFolder(temporaryRoot)
try {
  process.exitCode = await main(folder)
} catch (error) {
  console.error(`kills: ${messageOf(error)}`)
  process.exitCode = 2
} finally {
  removeTemporaryFolder(folder)
}
