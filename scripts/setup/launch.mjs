import { checkFiles } from '../../src/microvm/command-line/check-files.mjs'
import { parseCommandLine, UsageError } from '../../src/microvm/command-line/parse.mjs'
import { ensureSetUp } from './ensure.mjs'
import { thisMachine, whatIsMissing } from './machine.mjs'

/**
 * What `./microvm` does first, on the machine's own Node: checks, help, set-up. Its exit status tells the shell
 * script how to go on: 0 start the tool, 3 everything was said, anything else is the tool's own exit status.
 */
const SAID_IT_ALL = 3
const FAILED = 125

process.exitCode = launch(process.argv.slice(2))

/** @param {readonly string[]} argv */
function launch(argv) {
  try {
    const commandLine = parseCommandLine(argv)
    if (commandLine.kind === 'help') {
      process.stdout.write(commandLine.text)
      return SAID_IT_ALL
    }
    checkFiles(commandLine.options)
  } catch (error) {
    if (error instanceof UsageError) return refuse(error.message)
    throw error
  }
  const missing = whatIsMissing(thisMachine())
  if (missing !== undefined) return refuse(missing)
  return ensureSetUp({ tests: false }) ? 0 : FAILED
}

/** @param {string} sentence */
function refuse(sentence) {
  process.stderr.write(`microvm: ${sentence}\n`)
  return 2
}
