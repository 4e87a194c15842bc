import { existsSync, mkdtempSync, readdirSync, rmSync, statSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

const NAME = /^microvm-(\d+)-\w{6}$/

/**
 * A new folder that only this user can enter, for the sockets and images of one run. Folders of runs that were killed
 * before they could remove theirs are removed first: the name tells which process each belonged to.
 */
export function makePrivateFolder(): string {
  sweep(tmpdir())
  // mkdtemp makes it with mode 0700.
  return mkdtempSync(join(tmpdir(), `microvm-${process.pid}-`))
}

/** Removes a folder made by {@link makePrivateFolder} with all that is in it. */
export function removePrivateFolder(folder: string): void {
  rmSync(folder, { recursive: true, force: true })
}

function sweep(parent: string): void {
  for (const name of readdirSync(parent)) {
    const pid = NAME.exec(name)?.[1]
    if (pid === undefined || existsSync(`/proc/${pid}`)) continue
    const path = join(parent, name)
    const status = statSync(path, { throwIfNoEntry: false })
    if (status?.isDirectory() && status.uid === process.getuid?.()) removePrivateFolder(path)
  }
}
