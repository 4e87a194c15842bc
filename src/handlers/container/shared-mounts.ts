import { AgentError, errnoOf } from '../../base/errors.ts'
import type { SharedMount } from '../../gen/agent.ts'
import { checkAbsolutePath } from '../../oci/check-field.ts'
import type { Mounts } from '../../os/files/mounts.ts'
import type { ContainerProcess } from '../process/process.ts'
import type { SandboxContext } from '../sandbox/context.ts'

/** How long a container may take to mount what another one is to share, and how often it is looked whether it has. */
const WAIT_MS = 10_000
const LOOK_MS = 100

/** What a container's name in Kubernetes is noted under, by containerd and by CRI-O. */
const NAME_ANNOTATIONS = ['io.kubernetes.cri.container-name', 'io.kubernetes.cri-o.ContainerName']

/** Throws INVALID_ARGUMENT, naming the field, for paths that lead nowhere. */
export function checkSharedMounts(mounts: readonly SharedMount[]): void {
  for (const [index, { srcPath, dstPath }] of mounts.entries()) {
    checkAbsolutePath(`shared_mounts[${index}].src_path`, srcPath)
    checkAbsolutePath(`shared_mounts[${index}].dst_path`, dstPath)
  }
}

/**
 * Gives a container that waits to be started copies of what other containers have mounted (behaviour spec, section C.1).
 * What its source has not mounted after 10 s is left out, with a line in the log. The copies end with the container.
 */
export async function cloneSharedMounts(
  context: SandboxContext,
  container: { readonly mounts: readonly SharedMount[]; readonly init: ContainerProcess },
  signal: AbortSignal,
): Promise<void> {
  const sources = await Promise.all(container.mounts.map((mount) => sourceOnceReady(context, mount, signal)))
  for (const [index, { name, srcCtr, srcPath, dstPath }] of container.mounts.entries()) {
    const source = sources[index]
    // Looked at again, for the number of a process that ended while others were waited for may be another's.
    if (source === undefined || source.status !== undefined) {
      context.log.warn('shared mount left out', { name, container: srcCtr, path: srcPath })
      continue
    }
    const { pid, status } = container.init
    if (status !== undefined)
      throw new AgentError('INTERNAL', `shared mount ${dstPath}: the container has ended`)
    await context.os.mounts.clone({ pid: source.pid, path: srcPath }, { pid, path: dstPath })
  }
}

/** The first process of the container that has it mounted, or undefined when none has in time. */
async function sourceOnceReady(
  context: SandboxContext,
  { srcCtr, srcPath }: SharedMount,
  signal: AbortSignal,
): Promise<ContainerProcess | undefined> {
  const { clock, mounts } = context.os
  const givenUpMs = clock.monotonicMs() + WAIT_MS
  for (;;) {
    const process = firstProcessOf(context, srcCtr)
    if (process !== undefined && (await hasMounted(mounts, process.pid, srcPath))) return process
    if (clock.monotonicMs() >= givenUpMs) return undefined
    await clock.sleep(LOOK_MS, signal)
  }
}

/** The living first process of the container with this name. */
function firstProcessOf({ containers }: SandboxContext, name: string): ContainerProcess | undefined {
  for (const { state } of containers.list()) {
    if (!('parts' in state) || state.parts.init.status !== undefined) continue
    const { Annotations } = state.parts.spec.current
    if (NAME_ANNOTATIONS.some((key) => Annotations[key] === name)) return state.parts.init
  }
  return undefined
}

async function hasMounted(mounts: Mounts, pid: number, path: string): Promise<boolean> {
  try {
    return (await mounts.list(pid)).some(({ mountPoint }) => mountPoint === path)
  } catch (error) {
    if (errnoOf(error) === 'ENOENT' || errnoOf(error) === 'EINVAL') return false
    throw error
  }
}
