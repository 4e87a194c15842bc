import { CLONES, clonesTable, readClonesRun } from './test/clones-run.ts'
import { type LongRun, runLong } from './test/long-run.ts'

/**
 * `npm run clones -- [--count N] [--seed S]`: clones of one pod beside each other, in two forms of memory, each looked at from inside; one of
 * them is killed, and one is cloned on and on. The exit status is 1 when they share something.
 */
function prepare(): LongRun {
  const { count, seed } = readClonesRun(process.argv.slice(2))
  console.log(`clones: ${count}, --seed ${seed}`)
  return {
    seed,
    patterns: ['test/vm/resume/daemon-clones.test.ts'],
    environment: (figures) => ({
      [CLONES.count]: String(count),
      [CLONES.seed]: String(seed),
      [CLONES.figures]: figures,
    }),
    table: clonesTable,
  }
}

process.exitCode = await runLong('vm', prepare)
