import { setTimeout as delay } from 'node:timers/promises'
import { joinProcess } from '../../../client/container/attach.ts'
import { agentOf } from '../../../client/container/container-session.ts'
import { OutputClosed, type ProcessKey } from '../../../client/container/stdio.ts'
import { DETACH_KEYS, parseKeys } from '../../../client/terminal/detach-keys.ts'
import { type Process, Process_Role } from '../../../gen/microvm/agent/v1/introspection.ts'
import { type Introspection, introspectionCalls } from '../../clients.ts'
import { CommandFailure, type Context, EXIT } from '../../command.ts'
import { untilDetached } from './exec.ts'

/** A process closes its outputs a moment before its exit is known. */
const EXIT_MS = 2000
const LOOK_MS = 50

export async function run(context: Context): Promise<number> {
  const { io, signal, values } = context
  const [containerId, added] = [values.argument('CONTAINER'), values.argument('PROCESS')]
  const detachKeys = values.parsed('detach-keys', DETACH_KEYS, parseKeys)
  const introspection = await introspectionCalls(context)
  const { hasTerminal, pid } = await processOf(introspection, containerId, added)
  const key = { containerId, execId: added || containerId }
  const agent = agentOf(await context.session())
  const streams = { stdio: io, tty: hasTerminal, passInput: !values.flag('no-stdin'), detachKeys }
  let failure: unknown
  try {
    const joined = joinProcess({ agent, process: key, ...streams, signal }).then(() => true)
    if ((await untilDetached(context, key, joined)) === undefined) return 0
  } catch (error) {
    if (signal.aborted || error instanceof OutputClosed) throw error
    // The agent forgets a process once its owner has collected the status.
    failure = error
  }
  const status = await statusOf(introspection, containerId, pid, signal)
  if (status !== undefined) return status
  if (failure !== undefined) throw failure
  io.stderr.write(`agent-ctl: ${key.execId} has closed its output, and goes on\n`)
  return 0
}

async function processOf(
  introspection: Introspection,
  containerId: string,
  added: string,
): Promise<Pick<Process, 'hasTerminal' | 'pid'>> {
  const found = await findProcess(introspection, { containerId, execId: added })
  if (found !== undefined) return found
  const text = `process ${JSON.stringify(added || containerId)}: not found; see agent-ctl ps ${containerId}`
  throw new CommandFailure(EXIT.cannotRun, text)
}

/** An added process, or the first process for an empty `execId`. */
export async function findProcess(
  introspection: Introspection,
  { containerId, execId }: ProcessKey,
): Promise<Process | undefined> {
  const { processes } = await introspection.listProcesses({ containerId })
  const role = execId === '' ? Process_Role.INIT : Process_Role.EXEC
  return processes.find((each) => each.role === role && each.execId === execId)
}

/** Reads the status without WaitProcess, which would take it away from the process's owner. */
async function statusOf(
  introspection: Introspection,
  containerId: string,
  pid: number,
  signal: AbortSignal,
): Promise<number | undefined> {
  for (const until = performance.now() + EXIT_MS; ; ) {
    const { exits } = await introspection.listExits({ containerId })
    const exit = exits.findLast((each) => each.pid === pid)
    if (exit !== undefined || performance.now() > until) return exit?.status
    await delay(LOOK_MS, undefined, { signal })
  }
}
