import { ensureSetUp, setUp } from './setup/ensure.mjs'
import { thisMachine, whatIsMissing } from './setup/machine.mjs'

/**
 * `node scripts/setup.mjs [--tests]`: installs the Debian and npm packages of the project; `--tests` adds those of its
 * tests. Runs on Node 20 without dependencies. `--locked` marks its own second call, which holds the lock.
 */
const args = process.argv.slice(2)
const scope = { tests: args.includes('--tests') }
process.exitCode = args.includes('--locked') ? locked() : main()

function main() {
  const unknown = args.find((word) => word !== '--tests')
  if (unknown !== undefined) return refuse(`${unknown}: unknown option, want --tests`)
  const missing = whatIsMissing(thisMachine())
  if (missing !== undefined) return refuse(missing)
  return ensureSetUp(scope) ? 0 : 1
}

function locked() {
  try {
    setUp(scope, (line) => process.stderr.write(`set-up: ${line}\n`))
    return 0
  } catch (error) {
    process.stderr.write(`set-up: ${error instanceof Error ? error.message : String(error)}\n`)
    return 1
  }
}

/** @param {string} sentence */
function refuse(sentence) {
  process.stderr.write(`set-up: ${sentence}\n`)
  return 2
}
