import { abortable, LONGEST_TIMER_MS } from '../../base/abort.ts'
import { AgentError, messageOf } from '../../base/errors.ts'
import type { Logger } from '../../base/log.ts'
import { inStep } from '../../base/step.ts'
import { UndoList } from '../../base/undo.ts'
import type { Hook, Process } from '../../gen/oci.ts'
import type { ContainerRules } from '../../oci/denied-calls.ts'
import type { Os } from '../../os/os.ts'
import { type Call, NO_CALLER } from '../../state/request.ts'
import type { OciRuntime } from '../oci-runtime/client.ts'
import { connectStdio, type LaunchContext, prepareLaunch } from '../process/launch.ts'
import type { ContainerProcess } from '../process/process.ts'
import type { Stdio } from '../stdio/stdio.ts'
import type { ContainerParts } from './container.ts'

export interface StartHookContext extends LaunchContext {
  readonly os: Os
  readonly log: Logger
  readonly runtime: Pick<OciRuntime, 'exec' | 'discardRun'>
}

/** How much of a failed hook's stderr is logged. */
export const LOGGED_CHARACTERS = 500

const NO_PORTS = { stdinPort: 0, stdoutPort: 0, stderrPort: 0 }
const READ_BYTES = 65_536

/**
 * Runs the startContainer hooks in order, as processes added to the container. Never rejects: a hook that fails or takes too
 * long is logged, and the next one runs, where a runtime would end the container. `skipped` kills the running hook and skips
 * the others. A hook that the previous agent began for the same call does not run again.
 */
export async function runStartContainerHooks(
  dependencies: StartHookContext,
  container: {
    readonly id: string
    readonly parts: Pick<ContainerParts, 'cgroup' | 'spec' | 'startContainer' | 'record'>
  },
  state: string,
  skipped: AbortSignal,
): Promise<void> {
  const { id, parts } = container
  for (const [index, hook] of parts.startContainer.entries()) {
    if (skipped.aborted) return
    if (index < parts.record.fields.hooksBegun) continue
    try {
      parts.record.save({ hooksBegun: index + 1 })
      const { current: spec } = parts.spec
      const process = hookProcess(hook, spec.Process)
      const isMember = (pid: number) => parts.cgroup.holds(pid)
      const run = { containerId: parts.record.key, process, spec, state, hook, isMember }
      await inStep('hook', hook.Path, () => runHook(dependencies, run, skipped))
    } catch (error) {
      const fields = { containerId: id, hook: hook.Path, error: messageOf(error) }
      dependencies.log.warn('startContainer hook failed', fields)
    }
  }
}

/**
 * The hook has the rights and limits of the container's program, as when a runtime runs it. A runtime executes the file that
 * the first argument names, so this is the path.
 */
function hookProcess({ Path, Args, Env }: Hook, program: Process): Process {
  return {
    ...program,
    Terminal: false,
    ConsoleSize: undefined,
    Args: [Path, ...Args.slice(1)],
    Env: [...Env],
    Cwd: '/',
  }
}

async function runHook(
  dependencies: StartHookContext,
  { containerId, process, spec, state, hook, isMember }: HookRun,
  skipped: AbortSignal,
): Promise<void> {
  const { os, log, runtime, keys } = dependencies
  const onFailure = new UndoList(log)
  const limit = limitOf(os, hook, skipped)
  const key = keys.next()
  try {
    const call = { ...NO_CALLER, signal: limit.signal }
    const stdio = { ports: NO_PORTS, hasTerminal: false, onFailure }
    const connections = await connectStdio(dependencies, stdio, call)
    const launch = await prepareLaunch(dependencies, { key, hasTerminal: false, connections, onFailure })
    let added: ContainerProcess
    try {
      const { streams } = launch
      const addition = { key, containerId, process, spec, streams, cgroup: '', isMember }
      added = await launch.follow(await runtime.exec(addition, limit.signal))
    } finally {
      await launch.close()
      await runtime.discardRun(key)
    }
    const [stderr] = await Promise.all([
      lastOf(added.stdio.stderr, call),
      lastOf(added.stdio.stdout, call),
      giveState(added.stdio.stdin, state, call),
    ])
    const status = await abortable(added.ended, limit.signal)
    await added.stdio.close()
    if (status !== 0) throw new Error(`exit status ${status}: ${stderr.trim()}`)
  } catch (error) {
    await onFailure.run()
    throw error
  } finally {
    limit.stop()
  }
}

interface HookRun {
  /** The container's key. */
  readonly containerId: string
  readonly process: Process
  readonly spec: ContainerRules
  readonly state: string
  readonly hook: Hook
  readonly isMember: (pid: number) => Promise<boolean>
}

/** Ignores write errors, because a hook need not read its input. */
async function giveState(stdin: Stdio['stdin'], state: string, call: Call): Promise<void> {
  await stdin.write(Buffer.from(state), call).catch(() => {})
  await stdin.end()
}

/** Reads a stream to its end, and returns its last {@link LOGGED_CHARACTERS}. */
async function lastOf(stream: Stdio['stdout'], call: Call): Promise<string> {
  let last = ''
  for (;;) {
    const output = await stream.read(READ_BYTES, call)
    const data = output.read()
    output.delivered()
    if (data.length === 0) return last
    last = (last + Buffer.from(data).toString()).slice(-LOGGED_CHARACTERS)
  }
}

/** A signal that fires with `skipped` and at the hook's time-out, until `stop`. */
function limitOf({ clock }: Os, { Timeout }: Hook, skipped: AbortSignal) {
  const over = new AbortController()
  const stopped = new AbortController()
  const ms = Math.min(Number(Timeout) * 1000, LONGEST_TIMER_MS)
  clock.sleep(ms, stopped.signal).then(
    () => over.abort(new AgentError('DEADLINE_EXCEEDED', `not finished after ${ms} ms`)),
    () => {},
  )
  return { signal: AbortSignal.any([skipped, over.signal]), stop: () => stopped.abort() }
}
