import { randomBytes } from 'node:crypto'
import { AgentError, messageOf } from '../../../base/errors.ts'
import { lacksProgram } from '../../../client/container/container-program.ts'
import { type Agent, agentOf } from '../../../client/container/container-session.ts'
import { type ContainerRequest, containerSpec } from '../../../client/container/container-spec.ts'
import { findUser, hasName, type UserWord } from '../../../client/container/container-user.ts'
import type { Session } from '../../../client/open-session.ts'
import { terminalSize } from '../../../client/terminal/terminal.ts'
import { callFailure, introspectionCalls } from '../../clients.ts'
import { CommandFailure, type Context, UsageError } from '../../command.ts'
import { print } from '../../output/print.ts'
import { follow } from './exec.ts'
import { processOptions } from './process-options.ts'
import { startFailure } from './start-failure.ts'
import { noCat, userIn } from './user-in-container.ts'

const REMOVE_MS = 10_000

export async function run(context: Context): Promise<number> {
  const { io, signal, timeoutMs, values } = context
  const given = processOptions(values, values.rest('PROGRAM'))
  const { interactive, tty } = given
  const rootPath = values.text('rootfs')
  if (rootPath === undefined || !rootPath.startsWith('/'))
    throw new UsageError('run: no --rootfs, want --rootfs PATH with an absolute path of the guest')
  const id = values.text('id') ?? `ctl-${randomBytes(6).toString('hex')}`
  const session = await context.session()
  const agent = agentOf(session)
  await ensureSandbox(context, agent, id)
  const options = { signal, timeoutMs }
  const user = await userOnRoot({ context, session, id, rootPath, word: given.user, options })
  const terminal = tty ? terminalSize(io) : undefined
  const request = { ...given, user, terminal, id, hostname: id, rootPath }
  await step('CreateContainer', create(agent, request, options))
  let isKept = values.flag('detach')
  try {
    await step('StartContainer', agent.startContainer({ containerId: id }, options))
    if (isKept) {
      await print(context, `${id}\n`)
      return 0
    }
    const status = await follow(context, agent, { containerId: id, execId: id }, { interactive, tty })
    isKept = status === undefined
    return status ?? 0
  } catch (error) {
    isKept = false
    throw error
  } finally {
    // The command's signal may have fired, so the removal does not use it.
    if (!isKept) await remove(context, agent, id)
  }
}

/** Never rejects, because the command's own error says more. */
async function remove({ io }: Context, agent: Agent, containerId: string): Promise<void> {
  try {
    await agent.removeContainer({ containerId }, { timeoutMs: REMOVE_MS })
  } catch (error) {
    const failure = messageOf(callFailure('RemoveContainer', error))
    io.stderr.write(`agent-ctl: container ${containerId} is left: ${failure}\n`)
  }
}

interface CallLimits {
  readonly signal: AbortSignal
  readonly timeoutMs: number | undefined
}

async function create(agent: Agent, request: ContainerRequest, options: CallLimits): Promise<void> {
  const OCI = containerSpec(request)
  // The agent gives its own limit of open files to a process without one.
  if (OCI.Process !== undefined) OCI.Process.Rlimits = []
  const { id } = request
  await agent.createContainer({ containerId: id, execId: id, OCI }, options)
}

/** Looks a user name up in the root's passwd and group, by a temporary container with the id of the later one. */
async function userOnRoot(on: {
  readonly context: Context
  readonly session: Session
  readonly id: string
  readonly rootPath: string
  readonly word: UserWord
  readonly options: CallLimits
}): Promise<ContainerRequest['user']> {
  const { context, id, options, rootPath, session, word } = on
  const agent = agentOf(session)
  if (!hasName(word)) return findUser(word, { passwd: '', group: '' })
  const user = { uid: 0, gid: 0, additionalGids: [] }
  // cat waits for the end of its stdin, which does not come.
  const request = { args: ['cat'], env: [], cwd: '/', user, terminal: undefined, id, hostname: id, rootPath }
  let isCreated = false
  try {
    await create(agent, request, options)
    isCreated = true
    await agent.startContainer({ containerId: id }, options)
    return await userIn(session, id, word, options.signal)
  } catch (error) {
    throw lacksProgram(error) ? noCat(error) : startFailure('CreateContainer', error)
  } finally {
    if (isCreated) await remove(context, agent, id)
  }
}

async function step(method: string, call: Promise<unknown>): Promise<void> {
  try {
    await call
  } catch (error) {
    throw startFailure(method, error)
  }
}

/** Creates a sandbox if there is none. Kata's agent does not tell, and may refuse a second sandbox. */
async function ensureSandbox(context: Context, agent: Agent, id: string): Promise<void> {
  const { signal, timeoutMs } = context
  const state = await sandboxState(context)
  if (state !== undefined && state !== 'none' && state !== 'destroyed') return
  try {
    await agent.createSandbox({ sandboxId: id, hostname: id }, { signal, timeoutMs })
  } catch (error) {
    if (state !== undefined || !(error instanceof AgentError) || error.code === 'UNAVAILABLE')
      throw callFailure('CreateSandbox', error)
  }
}

async function sandboxState(context: Context): Promise<string | undefined> {
  try {
    return (await (await introspectionCalls(context)).getSandbox({})).state
  } catch (error) {
    // Kata's agent has no such call.
    if (error instanceof CommandFailure) return undefined
    throw error
  }
}
