import { randomBytes } from 'node:crypto'
import { AgentError } from '../../../base/errors.ts'
import { type Agent, agentOf } from '../../../client/container-session.ts'
import { containerSpec } from '../../../client/container-spec.ts'
import { terminalSize } from '../../../client/terminal.ts'
import { callFailure, introspectionCalls } from '../../clients.ts'
import { CommandFailure, type Context, UsageError } from '../../command.ts'
import { print } from '../../output/print.ts'
import { follow, startFailure } from './exec.ts'
import { processOptions } from './process-options.ts'

/** How long the removal may take that follows a failure, or the end of the process. */
const REMOVE_MS = 10_000

/** `agent-ctl run [OPTIONS] --rootfs PATH PROGRAM…`. */
export async function run(context: Context): Promise<number> {
  const { io, signal, timeoutMs, values } = context
  const { interactive, tty, ...request } = processOptions(values, values.rest('PROGRAM'))
  const rootPath = values.text('rootfs')
  if (rootPath === undefined || !rootPath.startsWith('/'))
    throw new UsageError('run: no --rootfs, want --rootfs PATH with an absolute path of the guest')
  const id = values.text('id') ?? `ctl-${randomBytes(6).toString('hex')}`
  const agent = agentOf(await context.session())
  await ensureSandbox(context, agent, id)
  const terminal = tty ? terminalSize(io) : undefined
  const OCI = containerSpec({ ...request, terminal, id, hostname: id, rootPath })
  // The agent gives its own limit of open files to whatever names none.
  if (OCI.Process !== undefined) OCI.Process.Rlimits = []
  const options = { signal, timeoutMs }
  await step('CreateContainer', agent.createContainer({ containerId: id, execId: id, OCI }, options))
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
    // The caller's signal may have fired, which is why the container goes.
    if (!isKept) await agent.removeContainer({ containerId: id }, { timeoutMs: REMOVE_MS }).catch(() => {})
  }
}

async function step(method: string, call: Promise<unknown>): Promise<void> {
  try {
    await call
  } catch (error) {
    throw startFailure(method, error)
  }
}

/** Makes a sandbox when there is none. An agent that cannot tell is asked to make one, and may refuse. */
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
    // The reference has no such call.
    if (error instanceof CommandFailure) return undefined
    throw error
  }
}
