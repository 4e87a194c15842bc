import { connectAgent } from '../../../src/microvm/connect-agent.ts'
import { agentOf } from '../../../src/microvm/run/container-session.ts'
import { containerSpec } from '../../../src/microvm/run/container-spec.ts'
import { Timings } from '../../../src/microvm/run/reporter.ts'
import type { runCommand } from '../../../src/microvm/run/run-command.ts'
import { runContainer } from '../../../src/microvm/run/run-container.ts'
import { terminalSize } from '../../../src/microvm/run/terminal.ts'
import { whatToRun } from '../../../src/microvm/run/what-to-run.ts'
import { runTool } from '../../../src/microvm/run-tool.ts'
import { connectSocket } from '../../../src/microvm/vsock/guest-link.ts'

/**
 * `run-on-agent.ts SOCKET ROOT WORD…`: `./microvm WORD…`, but the container runs on the folder ROOT in a sandbox of the
 * agent that listens on SOCKET, and no microVM is booted.
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
  // A machine that is a container itself may not raise its own limits as a guest can.
  if (spec.Process !== undefined) spec.Process.Rlimits = []
  return await runContainer({
    // The root is there already: there is no disk to mount.
    agent: {
      ...agent,
      createContainer: (request, how) => agent.createContainer({ ...request, storages: [] }, how),
    },
    container: { ...names, spec, rootDisk: { source: '', mountPoint: rootPath } },
    stdio,
    tty: options.tty,
    passInput: options.interactive || stdio.stdin.isTTY !== true,
    timings: new Timings(() => performance.now()),
    interruptions,
    signal,
  })
}

process.exit(await runTool(argv, runOnAgent))
