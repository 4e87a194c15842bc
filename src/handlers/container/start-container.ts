import { LONGEST_TIMER_MS } from '../../base/abort.ts'
import { messageOf } from '../../base/errors.ts'
import { inStep } from '../../base/step.ts'
import type { StartContainerRequest } from '../../gen/agent.ts'
import type { Hook, Spec } from '../../gen/oci.ts'
import { printJson } from '../../oci/json.ts'
import { OCI_VERSION } from '../../oci/runtime-config.ts'
import type { Os } from '../../os/os.ts'
import type { EventLog } from '../../state/event-log.ts'
import type { Call } from '../../state/request.ts'
import type { OomEvents } from '../cgroup/oom-events.ts'
import type { OciRuntime } from '../oci-runtime/client.ts'
import { bundleOf } from './bundle.ts'
import type { ContainerParts } from './container.ts'
import type { ContainerRegistry } from './registry.ts'
import type { SandboxLookup } from './sharing/active-sandbox.ts'
import { LOGGED_CHARACTERS, runStartContainerHooks, type StartHookContext } from './start-hooks.ts'

export interface StartContext extends StartHookContext {
  readonly config: StartHookContext['config'] & { readonly sharedRoot: string }
  readonly containers: ContainerRegistry
  readonly sandboxState: SandboxLookup
  readonly runtime: Pick<OciRuntime, 'start' | 'exec' | 'discardRun'>
  readonly oom: OomEvents
  readonly events: Pick<EventLog, 'add'>
}

/** StartContainer: starts the first process, between its hooks. It waits for a creation or an update under way. */
export async function startContainer(
  dependencies: StartContext,
  request: StartContainerRequest,
  { signal, number }: Call,
): Promise<void> {
  const { containers, sandboxState, oom } = dependencies
  const { container } = await containers.waitFor(request.containerId, 'INTERNAL', { signal })
  while (container.state.name === 'updating') await container.changed(container.state, signal)
  const { parts, interrupted } = container.beginStart(number)
  let succeeded = false
  try {
    // The sandbox's own container only holds namespaces, so its out-of-memory events are not watched.
    if (container.id !== sandboxState.active().id) await oom.watch(parts)
    await startBetweenHooks(dependencies, container.id, parts, interrupted)
    succeeded = true
  } finally {
    if (!succeeded) await oom.end(container.record.key)
    container.endStart(parts, succeeded)
  }
}

/** When `interrupted` fires, the running hook or runtime is killed and the rest is skipped. */
async function startBetweenHooks(
  dependencies: StartContext,
  id: string,
  parts: ContainerParts,
  interrupted: AbortSignal,
): Promise<void> {
  const { os, runtime, config } = dependencies
  const { init } = parts
  const { folder } = bundleOf(config.sharedRoot, parts.record.key)
  const described = { id, folder, spec: parts.spec.current }
  if (parts.startContainer.length > 0) {
    const state = stateOf(described, 'created', await innerPidOf(os, init.pid))
    await runStartContainerHooks(dependencies, { id, parts }, state, interrupted)
  }
  init.starting = runtime.start(parts.record.key, interrupted).then(() => {
    dependencies.events.add({ processStarted: { containerId: id, execId: '', pid: init.pid } })
  })
  await init.starting
  await runPoststartHooks(dependencies, { id, parts }, interrupted)
}

/** The container's state, which each hook gets on stdin (OCI runtime specification). */
function stateOf(
  { id, folder, spec }: { readonly id: string; readonly folder: string; readonly spec: Spec },
  status: 'created' | 'running' | 'stopped',
  pid: number,
): string {
  return printJson({
    ociVersion: OCI_VERSION,
    id,
    status,
    pid,
    bundle: folder,
    annotations: spec.Annotations,
  })
}

/** The pid in the process's own pid namespace: the last one of `NSpid` (proc(5)). */
async function innerPidOf({ files }: Os, pid: number): Promise<number> {
  const status = await files.readText(`/proc/${pid}/status`)
  return Number(/^NSpid:.*\t(\d+)$/m.exec(status)?.[1] ?? pid)
}

type HookedParts = Pick<ContainerParts, 'init' | 'spec' | 'startContainer' | 'poststart' | 'record'>

/** Whether this start still has poststart hooks that neither this agent nor the previous one has begun. */
export function hasPoststartHooks({ startContainer, poststart, record }: HookedParts): boolean {
  return poststart.length > 0 && record.fields.hooksBegun < startContainer.length + poststart.length
}

/**
 * Runs the poststart hooks in order. Never rejects: a failed hook is logged, and the next one runs. `skipped` kills the
 * running hook and skips the others. A hook that the previous agent began for the same call does not run again.
 */
export async function runPoststartHooks(
  {
    os,
    log,
    config,
  }: Pick<StartContext, 'os' | 'log'> & { readonly config: { readonly sharedRoot: string } },
  container: { readonly id: string; readonly parts: HookedParts },
  skipped: AbortSignal,
): Promise<void> {
  const { id, parts } = container
  const { init, spec, startContainer, poststart, record } = parts
  const { folder } = bundleOf(config.sharedRoot, record.key)
  const status = init.status === undefined ? 'running' : 'stopped'
  const state = stateOf({ id, folder, spec: spec.current }, status, init.pid)
  for (const [index, hook] of poststart.entries()) {
    if (skipped.aborted) return
    const number = startContainer.length + index
    if (number < record.fields.hooksBegun) continue
    try {
      record.save({ hooksBegun: number + 1 })
      await inStep('hook', hook.Path, () => runHook(os, hook, { state, folder, skipped }))
    } catch (error) {
      log.warn('poststart hook failed', { containerId: id, hook: hook.Path, error: messageOf(error) })
    }
  }
}

async function runHook(
  { tools }: Os,
  { Path, Args, Env, Timeout }: Hook,
  run: { readonly state: string; readonly folder: string; readonly skipped: AbortSignal },
): Promise<void> {
  const [name = Path, ...args] = Args
  const { exitCode, stderr } = await tools.run([Path, ...args], {
    name,
    stdin: run.state,
    cwd: run.folder,
    env: Object.fromEntries(Env.map(splitEntry)),
    signal: run.skipped,
    timeoutMs: Math.min(Number(Timeout) * 1000, LONGEST_TIMER_MS),
  })
  if (exitCode !== 0) throw new Error(`exit status ${exitCode}: ${stderr.trim().slice(-LOGGED_CHARACTERS)}`)
}

function splitEntry(entry: string): [string, string] {
  const [name = ''] = entry.split('=', 1)
  return [name, entry.slice(name.length + 1)]
}
