import { LONGEST_TIMER_MS } from '../../base/abort.ts'
import { messageOf } from '../../base/errors.ts'
import type { Hook } from '../../gen/oci.ts'
import { printJson } from '../../oci/json.ts'
import { DEFAULT_VERSION } from '../../oci/runtime-config.ts'
import type { SandboxContext } from '../sandbox/context.ts'
import { bundleOf } from './bundle.ts'
import type { ContainerParts } from './container.ts'

/** How much of what a failed hook wrote to stderr is logged. */
const LOGGED_CHARACTERS = 500

/**
 * Runs the poststart hooks of a container whose process was just started, one after the other, with the container's
 * state on stdin (OCI runtime specification). Never rejects: a hook that fails is logged, and the next one runs. When
 * `hurried` fires, the one that runs is killed, and those after it are left out.
 */
export async function runPoststartHooks(
  context: SandboxContext,
  containerId: string,
  parts: Pick<ContainerParts, 'init' | 'spec' | 'poststart'>,
  hurried: AbortSignal,
): Promise<void> {
  const { folder } = bundleOf(context.config.sharedRoot, containerId)
  const { Version, Annotations } = parts.spec.current
  const state = printJson({
    ociVersion: Version === '' ? DEFAULT_VERSION : Version,
    id: containerId,
    status: parts.init.status === undefined ? 'running' : 'stopped',
    pid: parts.init.pid,
    bundle: folder,
    annotations: Annotations,
  })
  for (const hook of parts.poststart) {
    if (hurried.aborted) return
    try {
      await runHook(context, hook, { state, folder, hurried })
    } catch (error) {
      const fields = { containerId, hook: hook.Path, error: messageOf(error) }
      context.log.warn('poststart hook failed', fields)
    }
  }
}

async function runHook(
  { os }: SandboxContext,
  { Path, Args, Env, Timeout }: Hook,
  {
    state,
    folder,
    hurried,
  }: { readonly state: string; readonly folder: string; readonly hurried: AbortSignal },
): Promise<void> {
  const [name = Path, ...args] = Args
  const { exitCode, stderr } = await os.tools.run([Path, ...args], {
    name,
    stdin: state,
    cwd: folder,
    env: Object.fromEntries(Env.map(splitEntry)),
    signal: hurried,
    timeoutMs: Math.min(Number(Timeout) * 1000, LONGEST_TIMER_MS),
  })
  if (exitCode !== 0) throw new Error(`exit status ${exitCode}: ${stderr.trim().slice(-LOGGED_CHARACTERS)}`)
}

function splitEntry(entry: string): [string, string] {
  const [name = ''] = entry.split('=', 1)
  return [name, entry.slice(name.length + 1)]
}
