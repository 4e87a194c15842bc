import { writeFileSync } from 'node:fs'
import { type LongRun, runLong } from './test/long-run.ts'
import { MOVES, movesTable } from './test/moves-run.ts'
import { readRun } from './test/read-run.ts'

/**
 * `npm run moves -- [--count N] [--seed S] [--lease MS]`: a machine moves back and forth between two hosts while daemons, controllers, etcd,
 * holders and wires fail. The move number N has the seed S + N - 1. The exit status is 1 when two ran it at once, or
 * nobody, or something was lost. With `--lease`, it has LM_FULL_LEASES of this TTL, and ends with its lease. SIGTERM ends the run after the next move.
 */
function prepare(): LongRun {
  const { numbers, seed } = readRun(process.argv.slice(2), ['count', 'lease'])
  const count = numbers.get('count') ?? 100
  console.log(`moves: ${count}, --seed ${seed}`)
  return {
    seed,
    patterns: ['test/host/wing/migration/moves/random-moves.test.ts'],
    environment: (figures) => {
      const stop = `${figures}-stop`
      process.once('SIGTERM', () => writeFileSync(stop, ''))
      return {
        [MOVES.count]: String(count),
        [MOVES.seed]: String(seed),
        [MOVES.lease]: String(numbers.get('lease') ?? 0),
        [MOVES.figures]: figures,
        [MOVES.stop]: stop,
      }
    },
    table: movesTable,
  }
}

process.exitCode = await runLong('host', prepare)
