import { AgentError } from '../../base/errors.ts'
import type { Files } from '../../os/files/files.ts'
import type { MountEntry, MountFlag } from '../../os/files/mounts.ts'
import { type BootContext, outcomeOf, type StepOutcome } from './step.ts'

export interface GuestMount {
  readonly source: string
  readonly target: string
  readonly type: string
  readonly flags: readonly MountFlag[]
  readonly data: string
}

/** vminit mounts these file systems before it starts the agent, which needs them to start. */
const EXPECTED: readonly { readonly target: string; readonly type: string }[] = [
  { target: '/proc', type: 'proc' },
  { target: '/sys', type: 'sysfs' },
  { target: '/dev', type: 'devtmpfs' },
]

/** /tmp is mounted because the root file system may be read-only. */
const MOUNTS: readonly GuestMount[] = [
  tmpfs('/dev/shm', 'mode=1777'),
  {
    source: 'devpts',
    target: '/dev/pts',
    type: 'devpts',
    flags: ['nosuid', 'noexec'],
    // gid 5 is tty on every distribution that has the group.
    data: 'gid=5,mode=620,ptmxmode=666',
  },
  tmpfs('/run', 'mode=755'),
  tmpfs('/tmp', 'mode=1777'),
]

/** Throws INTERNAL when a mount of vminit is missing. */
export async function mountGuestFileSystems(context: BootContext): Promise<StepOutcome> {
  const mounted = await context.os.mounts.list()
  for (const { target, type } of EXPECTED) {
    if (!isMounted(mounted, target, type)) {
      throw new AgentError('INTERNAL', `mount ${target}: no ${type} mounted, want the one that vminit mounts`)
    }
  }
  const outcomes: StepOutcome[] = []
  for (const mount of MOUNTS) outcomes.push(await ensureMounted(context, mounted, mount))
  return outcomeOf(outcomes)
}

/** Creates the mount point too. Does nothing when `mounted` shows the type at the target. */
export async function ensureMounted(
  { os }: BootContext,
  mounted: readonly MountEntry[],
  mount: GuestMount,
): Promise<StepOutcome> {
  if (isMounted(mounted, mount.target, mount.type)) return 'already'
  await os.files.makeDirectories(mount.target, 0o755)
  await os.mounts.mount(mount)
  return 'done'
}

/** Compares the type of the topmost mount at `target`. */
export function isMounted(mounted: readonly MountEntry[], target: string, type: string): boolean {
  return mounted.findLast(({ mountPoint }) => mountPoint === target)?.type === type
}

function tmpfs(target: string, data: string): GuestMount {
  return { source: 'tmpfs', target, type: 'tmpfs', flags: ['nosuid', 'nodev'], data }
}

const LINKS: readonly { readonly path: string; readonly target: string }[] = [
  // The kernel's own /dev/ptmx belongs to no devpts instance; the node of the devpts mounted above does.
  { path: '/dev/ptmx', target: '/dev/pts/ptmx' },
  { path: '/dev/fd', target: '/proc/self/fd' },
  { path: '/dev/stdin', target: '/proc/self/fd/0' },
  { path: '/dev/stdout', target: '/proc/self/fd/1' },
  { path: '/dev/stderr', target: '/proc/self/fd/2' },
]

/** Replaces anything else of the same name. */
export async function linkDevices({ os }: BootContext): Promise<StepOutcome> {
  return outcomeOf(await Promise.all(LINKS.map(({ path, target }) => ensureLink(os.files, path, target))))
}

async function ensureLink(files: Files, path: string, target: string): Promise<StepOutcome> {
  const found = await files.lstat(path)
  if (found?.kind === 'symlink' && (await files.readLink(path)) === target) return 'already'
  if (found !== undefined) await files.removeFile(path)
  await files.symlink(target, path)
  return 'done'
}
