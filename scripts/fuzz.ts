import { FUZZ, fuzzTable, readFuzzRun } from './test/fuzz-run.ts'
import { type LongRun, runLong } from './test/long-run.ts'

/**
 * `npm run fuzz -- [--cases N] [--seed N] [--replay FILE/TARGET:SEED:PATH] [PATTERN]…`: runs the fuzz group with any number
 * of cases, or one case again. The exit status is 1 when a target failed.
 */
function prepare(): LongRun {
  const { cases, seed, replay, patterns } = readFuzzRun(process.argv.slice(2))
  console.log(replay === undefined ? `fuzz: ${cases} cases, --seed ${seed}` : `fuzz: ${replay}`)
  return {
    seed,
    patterns,
    environment: (figures) => ({
      [FUZZ.cases]: String(cases),
      [FUZZ.seed]: String(seed),
      [FUZZ.replay]: replay,
      [FUZZ.figures]: figures,
      [FUZZ.progressSeconds]: '20',
    }),
    table: fuzzTable,
  }
}

process.exitCode = await runLong('fuzz', prepare)
