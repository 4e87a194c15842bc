import { randomBytes } from 'node:crypto'
import { AgentError } from '../../base/errors.ts'
import { attach } from '../../client/attach.ts'
import { agentOf } from '../../client/container-session.ts'
import { addedProcess } from '../../client/container-spec.ts'
import { terminalSize } from '../../client/terminal.ts'
import { callFailure } from '../clients.ts'
import { CommandFailure, type Context, EXIT } from '../command.ts'
import { print } from '../output/print.ts'
import { processOptions } from './process-options.ts'

/** `agent-ctl exec [OPTIONS] CONTAINER PROGRAM…`. */
export async function run(context: Context): Promise<number> {
  const { interruptions, io, signal, timeoutMs, values } = context
  const { interactive, tty, ...request } = processOptions(values, values.rest('PROGRAM'))
  const containerId = values.argument('CONTAINER')
  const execId = values.text('id') ?? `ctl-${randomBytes(6).toString('hex')}`
  const agent = agentOf(await context.session())
  const process = addedProcess({ ...request, terminal: tty ? terminalSize(io) : undefined })
  try {
    await agent.execProcess({ containerId, execId, process }, { signal, timeoutMs })
  } catch (error) {
    throw startFailure('ExecProcess', error)
  }
  if (values.flag('detach')) {
    await print(context, `${execId}\n`)
    return 0
  }
  try {
    const target = { containerId, execId }
    return await attach({
      agent,
      process: target,
      stdio: io,
      tty,
      passInput: interactive,
      interruptions,
      signal,
    })
  } catch (error) {
    throw callFailure('the process', error)
  }
}

/** A process that could not be started, with docker's exit statuses for a program that is missing or none. */
export function startFailure(method: string, error: unknown): unknown {
  if (!(error instanceof AgentError)) return error
  const failure = callFailure(method, error)
  const text = failure instanceof Error ? failure.message : String(failure)
  if (/the file .* was not found/s.test(error.message)) return new CommandFailure(EXIT.notFound, text)
  if (/the file .* cannot be executed/s.test(error.message))
    return new CommandFailure(EXIT.notExecutable, text)
  return new CommandFailure(EXIT.cannotRun, text, { cause: error })
}
