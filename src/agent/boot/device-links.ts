import type { Files } from '../../os/files/files.ts'
import { type BootContext, outcomeOf, type StepOutcome } from './step.ts'

/** What programs expect in /dev beside the nodes that the kernel makes. */
const LINKS: readonly { readonly path: string; readonly target: string }[] = [
  // The node the kernel makes belongs to no pty instance; the one of our devpts does.
  { path: '/dev/ptmx', target: '/dev/pts/ptmx' },
  { path: '/dev/fd', target: '/proc/self/fd' },
  { path: '/dev/stdin', target: '/proc/self/fd/0' },
  { path: '/dev/stdout', target: '/proc/self/fd/1' },
  { path: '/dev/stderr', target: '/proc/self/fd/2' },
]

/** Makes the links of /dev; something else of that name is replaced. */
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
