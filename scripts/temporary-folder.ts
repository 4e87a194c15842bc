import { existsSync, mkdirSync, mkdtempSync, readdirSync, rmSync, statSync } from 'node:fs'
import { join } from 'node:path'

const NAME = /^microvm-(\d+)-\w{6}$/

/**
 * Calls `use` with a new folder below `parent` that only this user can enter. It is gone afterwards, also when the
 * process exits in between; `use` may move it elsewhere.
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
 * A new folder below `parent` that only this user can enter; the caller removes it. Those of processes that were killed
 * before they could remove theirs are removed first: the name tells which process each belonged to.
 */
export function makeTemporaryFolder(parent: string): string {
  mkdirSync(parent, { recursive: true })
  sweep(parent)
  // mkdtemp makes it with mode 0700.
  return mkdtempSync(join(parent, `microvm-${process.pid}-`))
}

/** Removes a folder made by {@link makeTemporaryFolder} with all that is in it. */
export function removeTemporaryFolder(folder: string): void {
  // Again and again, because a program that has just been killed may still write one more file.
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
