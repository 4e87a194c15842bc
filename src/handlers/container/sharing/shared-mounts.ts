import { AgentError, errnoOf } from '../../../base/errors.ts'
import type { Logger } from '../../../base/log.ts'
import type { SharedMount } from '../../../gen/agent.ts'
import { checkAbsolutePath } from '../../../oci/check/check-field.ts'
import type { Mounts } from '../../../os/files/mounts.ts'
import type { Os } from '../../../os/os.ts'
import type { ContainerProcess } from '../../process/process.ts'
import type { ContainerRegistry } from '../registry.ts'

/** How long the source container may take to make the mount. */
const WAIT_MS = 10_000
const LOOK_MS = 100

interface CloneContext {
  readonly os: Pick<Os, 'clock' | 'mounts'>
  readonly log: Logger
  readonly containers: Pick<ContainerRegistry, 'list'>
}

/** Annotations of containerd and CRI-O with a container's name in Kubernetes. */
const NAME_ANNOTATIONS = ['io.kubernetes.cri.container-name', 'io.kubernetes.cri-o.ContainerName']

/** Throws INVALID_ARGUMENT for a path that is not absolute. */
export function checkSharedMounts(mounts: readonly SharedMount[]): void {
  for (const [index, { srcPath, dstPath }] of mounts.entries()) {
    checkAbsolutePath(`shared_mounts[${index}].src_path`, srcPath)
    checkAbsolutePath(`shared_mounts[${index}].dst_path`, dstPath)
  }
}

/** Clones mounts of other containers into one that awaits its start. Mounts that are missing after 10 s are logged. */
export async function cloneSharedMounts(
  dependencies: CloneContext,
  container: { readonly mounts: readonly SharedMount[]; readonly init: ContainerProcess },
  signal: AbortSignal,
): Promise<void> {
  const { os, log } = dependencies
  const waits = container.mounts.map((mount) => waitForSource(dependencies, mount, signal))
  const sources = await Promise.all(waits)
  for (const [index, { name, srcCtr, srcPath, dstPath }] of container.mounts.entries()) {
    const source = sources[index]
    // Check again: once the process has ended, its pid may be reused.
    if (source === undefined || source.status !== undefined) {
      log.warn('shared mount left out', { name, container: srcCtr, path: srcPath })
      continue
    }
    const { pid, status } = container.init
    if (status !== undefined)
      throw new AgentError('INTERNAL', `shared mount ${dstPath}: the container has ended`)
    await os.mounts.clone({ pid: source.pid, path: srcPath }, { pid, path: dstPath })
  }
}

/** The first process of the source container once it has the mount; undefined after {@link WAIT_MS}. */
async function waitForSource(
  { os, containers }: CloneContext,
  { srcCtr, srcPath }: SharedMount,
  signal: AbortSignal,
): Promise<ContainerProcess | undefined> {
  const { clock, mounts } = os
  const givenUpMs = clock.monotonicMs() + WAIT_MS
  for (;;) {
    const process = firstProcessOf(containers, srcCtr)
    if (process !== undefined && (await hasMounted(mounts, process.pid, srcPath))) return process
    if (clock.monotonicMs() >= givenUpMs) return undefined
    await clock.sleep(LOOK_MS, signal)
  }
}

function firstProcessOf(
  containers: Pick<ContainerRegistry, 'list'>,
  name: string,
): ContainerProcess | undefined {
  for (const { state } of containers.list()) {
    if (!('parts' in state) || state.parts.init.status !== undefined) continue
    const { Annotations } = state.parts.spec.current
    if (NAME_ANNOTATIONS.some((key) => Annotations[key] === name)) return state.parts.init
  }
  return undefined
}

async function hasMounted(mounts: Mounts, pid: number, path: string): Promise<boolean> {
  try {
    return await mounts.isMounted(pid, path)
  } catch (error) {
    if (errnoOf(error) === 'ENOENT' || errnoOf(error) === 'EINVAL') return false
    throw error
  }
}
