import type { Stats } from 'node:fs'
import { lstat, readlink } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import { AgentError } from '../../base/errors.ts'

const OTHERS_WRITE = 0o022
const STICKY = 0o1000

/**
 * Whether only root and the daemon's user can replace what is in the folder, a path without links; with `entry`, that entry of
 * it. Throws the error of lstat(2).
 */
export async function isFixedBelow(folder: string, entry?: Stats): Promise<boolean> {
  let below = entry
  for (let at = folder; ; at = dirname(at)) {
    const status = await lstat(at)
    if (!isFixedIn(status, below)) return false
    if (dirname(at) === at) return true
    below = status
  }
}

/** `MAXSYMLINKS` of Linux. */
const MOST_LINKS = 40

/**
 * Where a path leads, and whether only root and the daemon's user can make it lead elsewhere. Throws the error of lstat(2), and
 * one with the errno ELOOP.
 */
export async function followPath(
  path: string,
): Promise<{ readonly real: string; readonly isFixed: boolean }> {
  const rest = partsOf(path).reverse()
  let real = '/'
  let isFixed = true
  let links = 0
  for (let name = rest.pop(); name !== undefined; name = rest.pop()) {
    if (name === '..') {
      real = dirname(real)
      continue
    }
    const next = join(real, name)
    const status = await lstat(next)
    isFixed &&= isFixedIn(await lstat(real), status)
    if (!status.isSymbolicLink()) {
      real = next
      continue
    }
    links += 1
    if (links > MOST_LINKS)
      throw new AgentError('FAILED_PRECONDITION', `${path}: its links are a loop`, { errno: 'ELOOP' })
    const target = await readlink(next)
    if (target.startsWith('/')) real = '/'
    rest.push(...partsOf(target).reverse())
  }
  return { real, isFixed }
}

function partsOf(path: string): string[] {
  return path.split('/').filter((part) => part !== '' && part !== '.')
}

/** In a sticky folder, such as /tmp, an entry can be replaced only by its owner and the folder's (chmod(2)). */
function isFixedIn(folder: Stats, entry: Stats | undefined): boolean {
  const isOpen = (folder.mode & OTHERS_WRITE) !== 0
  return isTrusted(folder) && (!isOpen || ((folder.mode & STICKY) !== 0 && isTrusted(entry)))
}

function isTrusted(status: Stats | undefined): boolean {
  return status !== undefined && [0, process.getuid?.()].includes(status.uid)
}
