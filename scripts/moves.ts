import { writeFileSync } from 'node:fs'
import { type LongRun, runLong } from './test/long-run.ts'
import { MOVES, movesTable } from './test/moves-run.ts'
import { readRun } from './test/read-run.ts'

/**
 * `npm run moves -- [--count N] [--seed S] [--lease MS] [--steps MS]`: a machine moves back and forth between two hosts while daemons, controllers, etcd,
 * holders and wires fail. The move number N has the seed S + N - 1. The exit status is 1 when two ran it at once, or
 * nobody, or something was lost. With `--lease`, it has LM_FULL_LEASES of this TTL, and ends with its lease. SIGTERM ends the run after the next move.
 * With `--steps`, each party is killed, stopped and cut off before each step of a move instead, until the move has ended and for this time at most.
 * Without `--lease`, so are they before those that only a guest with an agent has.
 */
function prepare(more: { isAsked: boolean }, ofSteps = 'test/host/wing/migration/moves/move-steps'): LongRun {
  const { numbers, seed } = readRun(process.argv.slice(2), ['count', 'lease', 'steps'])
  const [count, lease, steps] = [numbers.get('count') ?? 100, numbers.get('lease') ?? 0, numbers.get('steps')]
  more.isAsked = steps !== undefined && lease === 0
  const tests = steps === undefined ? 'test/host/wing/migration/moves/random-moves' : ofSteps
  console.log(steps === undefined ? `moves: ${count}, --seed ${seed}` : 'moves: one for each fault and step')
  return {
    seed,
    patterns: [`${tests}.test.ts`],
    environment: (figures) => {
      const stop = `${figures}-stop`
      process.once('SIGTERM', () => {
        more.isAsked = false
        writeFileSync(stop, '')
      })
      return {
        [MOVES.count]: String(count),
        [MOVES.seed]: String(seed),
        [MOVES.lease]: String(lease),
        ...(steps !== undefined && { [MOVES.steps]: String(steps) }),
        [MOVES.figures]: figures,
        [MOVES.stop]: stop,
      }
    },
    table: movesTable,
  }
}

const more = { isAsked: false }
process.exitCode = await runLong('host', () => prepare(more))
if (more.isAsked) process.exitCode ||= await runLong('vm', () => prepare(more, 'test/vm/resume/move-steps'))
