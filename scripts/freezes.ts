import { writeFileSync } from 'node:fs'
import { DEFAULT_COUNT, FREEZES, freezesTable } from './test/freezes-run.ts'
import { type LongRun, runLong } from './test/long-run.ts'
import { readRun } from './test/read-run.ts'

/**
 * `npm run freezes -- [--count N] [--seed S]`: guests stop at random moments and go on, a third of them
 * with another QEMU, and a third from a file by which a daemon resumes them. The
 * exit status is 1 when one lost something. SIGTERM ends the run after the next freeze.
 */
function prepare(): LongRun {
  const { numbers, seed } = readRun(process.argv.slice(2), ['count'])
  const count = numbers.get('count') ?? DEFAULT_COUNT
  console.log(`freezes: ${count}, --seed ${seed}`)
  return {
    seed,
    patterns: ['test/vm/resume/freezes.test.ts', 'test/vm/resume/suspend-kills.test.ts'],
    environment: (figures) => {
      const stop = `${figures}-stop`
      process.once('SIGTERM', () => writeFileSync(stop, ''))
      return {
        [FREEZES.count]: String(count),
        [FREEZES.seed]: String(seed),
        [FREEZES.figures]: figures,
        [FREEZES.stop]: stop,
        [FREEZES.progressSeconds]: '20',
      }
    },
    table: freezesTable,
  }
}

process.exitCode = await runLong('vm', prepare)
