import { buildAgent } from '../src/build/agent.ts'
import { KILLS, killsTable, readKillsRun } from './test/kills-run.ts'
import { type LongRun, runLong } from './test/long-run.ts'

/**
 * `npm run kills -- [--kills N] [--steps N] [--lives N] [--seed N] [PATTERN]…`: runs the kills group with any number of kills.
 * The exit status is 1 when a test failed.
 */
async function prepare(): Promise<LongRun> {
  const { kills, steps, lives, seed, patterns } = readKillsRun(process.argv.slice(2))
  console.log(`kills: ${kills} at random, ${steps} at steps, ${lives} lives, --seed ${seed}`)
  await buildAgent()
  return {
    seed,
    patterns,
    environment: (figures) => ({
      [KILLS.kills]: String(kills),
      [KILLS.steps]: String(steps),
      [KILLS.lives]: String(lives),
      [KILLS.seed]: String(seed),
      [KILLS.figures]: figures,
      [KILLS.progressSeconds]: '20',
    }),
    table: killsTable,
  }
}

process.exitCode = await runLong('kills', prepare)
