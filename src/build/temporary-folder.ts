import { existsSync, mkdirSync, mkdtempSync, readdirSync, rmSync, statSync } from 'node:fs'
import { join } from 'node:path'

const NAME = /^microvm-(\d+)-\w{6}$/

/**
 * Calls `use` with a new folder below `parent` that only this user can enter. The folder is removed afterwards, also when
 * the process exits before `use` returns; `use` may rename it to keep it.
 */
export async function withTemporaryFolder<T>(
  parent: string,
  use: (folder: string) => Promise<T>,
): Promise<T> {
  const folder = makeTemporaryFolder(parent)
  const remove = () => removeTemporaryFolder(folder)
  process.once('exit', remove)
  try {
    return await use(folder)
  } finally {
    process.off('exit', remove)
    remove()
  }
}

/**
 * A new folder below `parent` that only this user can enter; the caller removes it. Folders left behind by killed
 * processes are removed first: each folder's name contains the pid of its process.
 */
export function makeTemporaryFolder(parent: string): string {
  mkdirSync(parent, { recursive: true })
  sweep(parent)
  // mkdtemp(3) creates it with mode 0700.
  return mkdtempSync(join(parent, `microvm-${process.pid}-`))
}

/** Removes a folder made by {@link makeTemporaryFolder} and its content. */
export function removeTemporaryFolder(folder: string): void {
  // Retries, because a program that has just been killed may still write a file.
  rmSync(folder, { recursive: true, force: true, maxRetries: 5 })
}

function sweep(parent: string): void {
  for (const name of readdirSync(parent)) {
    const pid = NAME.exec(name)?.[1]
    if (pid === undefined || existsSync(`/proc/${pid}`)) continue
    const path = join(parent, name)
    const status = statSync(path, { throwIfNoEntry: false })
    if (status?.isDirectory() && status.uid === process.getuid?.()) removeTemporaryFolder(path)
  }
}
