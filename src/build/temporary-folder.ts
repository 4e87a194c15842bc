import { spawnSync } from 'node:child_process'
import { existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, statSync } from 'node:fs'
import { join } from 'node:path'
import { parseMountLine } from '../os/files/mountinfo.ts'

const NAME = /^microvm-(\d+)-\w{6}$/

/** Calls `use` with a new private folder, which is removed afterwards or at the exit, unless `use` renamed it. */
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

/** A new private folder; the caller removes it. Folders whose names have the pid of a dead process are removed first. */
export function makeTemporaryFolder(parent: string): string {
  mkdirSync(parent, { recursive: true })
  sweep(parent)
  // mkdtemp(3) creates it with mode 0700.
  return mkdtempSync(join(parent, `microvm-${process.pid}-`))
}

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
    if (status?.isDirectory() && status.uid === process.getuid?.()) removeLeftover(path)
  }
}

/** What cannot be removed stays: a later process must not fail because of it. */
function removeLeftover(folder: string): void {
  for (const mountPoint of mountsIn(folder)) spawnSync('umount', ['--lazy', mountPoint])
  // Through a mount, the files of others would be removed.
  if (mountsIn(folder).length > 0) return
  try {
    removeTemporaryFolder(folder)
  } catch {}
}

/** The last mount is first. */
function mountsIn(folder: string): string[] {
  const lines = readFileSync('/proc/self/mountinfo', 'utf8').trimEnd().split('\n')
  const mountPoints = lines.map((line) => parseMountLine(line).mountPoint)
  return mountPoints.filter((path) => path === folder || path.startsWith(`${folder}/`)).toReversed()
}
