import { mkdir, stat } from 'node:fs/promises'
import { dirname } from 'node:path/posix'
import { errnoOf } from '../../base/errors.ts'

/**
 * mkdir -p: each directory that is missing, the topmost first. Not Node's own, which tries again for ever, on a thread
 * that never comes back, where the kernel answers ENOENT although the parent is there (below /proc).
 */
export async function makeDirectories(path: string, mode: number): Promise<void> {
  try {
    await makeUnlessThere(path, mode)
  } catch (error) {
    const parent = dirname(path)
    if (errnoOf(error) !== 'ENOENT' || parent === path) throw error
    await makeDirectories(parent, mode)
    await makeUnlessThere(path, mode)
  }
}

/** A link to a directory is one too. */
async function makeUnlessThere(path: string, mode: number): Promise<void> {
  try {
    await mkdir(path, { mode })
  } catch (error) {
    if (errnoOf(error) !== 'EEXIST' || !(await stat(path)).isDirectory()) throw error
  }
}
