import { FUZZ, fuzzTable } from './test/fuzz-run.ts'
import { type LongRun, runLong } from './test/long-run.ts'
import { COMMANDS_A_CASE, readModelRun } from './test/model-run.ts'

/**
 * `npm run model -- --commands N [--seed N]`: runs only the model of the agent's life, 25 commands a case. Prints a
 * failed case with its seed and exits with status 1.
 */
function prepare(): LongRun {
  const { cases, seed } = readModelRun(process.argv.slice(2))
  console.log(`model: ${COMMANDS_A_CASE} commands a case, --seed ${seed}`)
  return {
    seed,
    patterns: ['test/fuzz/model.test.ts'],
    environment: (figures) => ({
      [FUZZ.cases]: String(cases),
      [FUZZ.seed]: String(seed),
      [FUZZ.figures]: figures,
      [FUZZ.progressSeconds]: '20',
    }),
    table: fuzzTable,
  }
}

process.exitCode = await runLong('fuzz', prepare)
