import { abortable, LONGEST_TIMER_MS } from '../../base/abort.ts'
import { messageOf } from '../../base/errors.ts'
import type { Logger } from '../../base/log.ts'
import type { StartContainerRequest } from '../../gen/agent.ts'
import type { Hook } from '../../gen/oci.ts'
import { printJson } from '../../oci/json.ts'
import { OCI_VERSION } from '../../oci/runtime-config.ts'
import type { Os } from '../../os/os.ts'
import type { OomEvents } from '../cgroup/oom-events.ts'
import type { OciRuntime } from '../oci-runtime/client.ts'
import type { SandboxLookup } from './active-sandbox.ts'
import { bundleOf } from './bundle.ts'
import type { ContainerParts } from './container.ts'
import type { ContainerRegistry } from './registry.ts'

/** What StartContainer needs. */
export interface StartDependencies extends HookDependencies {
  readonly containers: ContainerRegistry
  readonly sandboxState: SandboxLookup
  readonly runtime: Pick<OciRuntime, 'start'>
  readonly oom: OomEvents
}

interface HookDependencies {
  readonly os: Os
  readonly log: Logger
  readonly config: { readonly sharedRoot: string }
}

/**
 * StartContainer (behaviour spec, section C.2): starts the first process, then runs the poststart hooks. It waits for a
 * creation or an update under way.
 */
export async function startContainer(
  dependencies: StartDependencies,
  request: StartContainerRequest,
  signal: AbortSignal,
): Promise<void> {
  const { containers, sandboxState, runtime, oom } = dependencies
  const { container } = await containers.waitFor(request.containerId, 'INTERNAL', signal)
  while (container.state.name === 'updating') await abortable(container.state.settled, signal)
  const { parts, hooksSkipped } = container.beginStart()
  let succeeded = false
  try {
    // The sandbox's own container only holds namespaces.
    if (container.id !== sandboxState.active().id) await oom.watch(container.id, parts)
    await runtime.start(container.id)
    await runPoststartHooks(dependencies, container.id, parts, hooksSkipped)
    succeeded = true
  } finally {
    if (!succeeded) await oom.end(container.id)
    container.endStart(parts, succeeded)
  }
}

/** How much of a failed hook's stderr is logged. */
const LOGGED_CHARACTERS = 500

/**
 * Runs the poststart hooks of a container whose process was just started, one after the other, with the container's
 * state on stdin (OCI runtime specification). Never rejects: a hook that fails is logged, and the next one runs. When
 * `skipped` fires, the running hook is killed and those after it are left out.
 */
async function runPoststartHooks(
  dependencies: HookDependencies,
  containerId: string,
  { init, spec, poststart }: Pick<ContainerParts, 'init' | 'spec' | 'poststart'>,
  skipped: AbortSignal,
): Promise<void> {
  const { folder } = bundleOf(dependencies.config.sharedRoot, containerId)
  const state = printJson({
    ociVersion: OCI_VERSION,
    id: containerId,
    status: init.status === undefined ? 'running' : 'stopped',
    pid: init.pid,
    bundle: folder,
    annotations: spec.current.Annotations,
  })
  for (const hook of poststart) {
    if (skipped.aborted) return
    try {
      await runHook(dependencies.os, hook, { state, folder, skipped })
    } catch (error) {
      dependencies.log.warn('poststart hook failed', {
        containerId,
        hook: hook.Path,
        error: messageOf(error),
      })
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
