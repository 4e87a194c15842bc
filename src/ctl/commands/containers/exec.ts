import { randomBytes } from 'node:crypto'
import { constants } from 'node:os'
import { attach } from '../../../client/container/attach.ts'
import { type Agent, agentOf } from '../../../client/container/container-session.ts'
import { addedProcess } from '../../../client/container/container-spec.ts'
import { endProcess } from '../../../client/container/end-process.ts'
import { signalOnHangup } from '../../../client/container/signal-on-hangup.ts'
import type { ProcessKey } from '../../../client/container/stdio.ts'
import { DETACH_KEYS, Detached, parseKeys } from '../../../client/terminal/detach-keys.ts'
import { terminalSize } from '../../../client/terminal/terminal.ts'
import { callFailure } from '../../clients.ts'
import type { Context } from '../../command.ts'
import { print } from '../../output/print.ts'
import { processOptions } from './process-options.ts'
import { startFailure } from './start-failure.ts'
import { userIn } from './user-in-container.ts'

const { SIGHUP } = constants.signals

export async function run(context: Context): Promise<number> {
  const { io, signal, timeoutMs, values } = context
  const options = processOptions(values, values.rest('PROGRAM'))
  const { interactive, tty } = options
  const containerId = values.argument('CONTAINER')
  const execId = values.text('id') ?? `ctl-${randomBytes(6).toString('hex')}`
  const session = await context.session()
  const agent = agentOf(session)
  const user = await userIn(session, containerId, options.user, signal)
  const process = addedProcess({ ...options, user, terminal: tty ? terminalSize(io) : undefined })
  try {
    await agent.execProcess({ containerId, execId, process }, { signal, timeoutMs })
  } catch (error) {
    throw startFailure('ExecProcess', error)
  }
  if (values.flag('detach')) {
    await print(context, `${execId}\n`)
    return 0
  }
  const key = { containerId, execId }
  if (!tty) return (await follow(context, agent, key, { interactive, tty })) ?? 0
  // A terminal that closes sends SIGHUP. The agent does so for this tool, even when the tool is killed.
  const keep = await signalOnHangup(session, key, SIGHUP)
  try {
    const status = await follow(context, agent, key, { interactive, tty })
    if (status === undefined) await keep()
    return status ?? 0
  } catch (error) {
    await endProcess(agent, key, SIGHUP)
    throw error
  }
}

/** Returns the exit status; undefined at the detach keys. */
export async function follow(
  context: Context,
  agent: Agent,
  process: ProcessKey,
  { interactive, tty }: { readonly interactive: boolean; readonly tty: boolean },
): Promise<number | undefined> {
  const { interruptions, io, signal, values } = context
  const streams = {
    stdio: io,
    tty,
    passInput: interactive,
    detachKeys: values.parsed('detach-keys', DETACH_KEYS, parseKeys),
  }
  return await untilDetached(context, process, attach({ agent, process, ...streams, interruptions, signal }))
}

/** Resolves to undefined at the detach keys. */
export async function untilDetached<T>(
  { io }: Pick<Context, 'io'>,
  { execId }: ProcessKey,
  following: Promise<T>,
): Promise<T | undefined> {
  try {
    return await following
  } catch (error) {
    if (!(error instanceof Detached)) throw callFailure('the process', error)
    io.stderr.write(`\r\nagent-ctl: detached from ${execId}\r\n`)
    return undefined
  }
}
