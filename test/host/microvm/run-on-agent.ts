import { connectAgent } from '../../../src/client/connection/connect-agent.ts'
import { connectSocket } from '../../../src/client/connection/connect-socket.ts'
import { agentOf } from '../../../src/client/container/container-session.ts'
import { containerSpec } from '../../../src/client/container/container-spec.ts'
import { terminalSize } from '../../../src/client/terminal/terminal.ts'
import { Timings } from '../../../src/microvm/run/reporter.ts'
import type { runCommand } from '../../../src/microvm/run/run-command.ts'
import { passesInput, whatToRun } from '../../../src/microvm/run/run-command.ts'
import { runContainer } from '../../../src/microvm/run/run-container.ts'
import { runTool } from '../../../src/microvm/run-tool.ts'

/**
 * `run-on-agent.ts SOCKET ROOT WORD…` does `./microvm WORD…` without a microVM: the container runs on the folder ROOT in a
 * sandbox of the agent at SOCKET.
 */
const [socket = '', rootPath = '', ...argv] = process.argv.slice(2)

const runOnAgent: typeof runCommand = async (options, { interruptions, stdio }) => {
  const { signal } = interruptions
  const connection = await connectAgent({ connect: (each) => connectSocket({ path: socket }, each) }, signal)
  const agent = agentOf(connection)
  const id = `run-on-agent-${process.pid}`
  const names = { id, hostname: 'microvm' }
  const terminal = options.tty ? terminalSize(stdio) : undefined
  const spec = containerSpec({ ...whatToRun(options, undefined), ...names, rootPath, terminal })
  // If the machine is itself a container, a process may not raise its limits as it can in a guest.
  if (spec.Process !== undefined) spec.Process.Rlimits = []
  const { status } = await runContainer({
    // The root exists already, so no disk has to be mounted.
    agent: {
      ...agent,
      createContainer: (request, how) => agent.createContainer({ ...request, storages: [] }, how),
    },
    container: { ...names, spec, rootDisk: { source: '', mountPoint: rootPath } },
    stdio,
    tty: options.tty,
    passInput: passesInput(options, stdio.stdin),
    timings: new Timings(() => performance.now()),
    interruptions,
    signal,
  })
  return status
}

process.exit(await runTool(argv, runOnAgent))
