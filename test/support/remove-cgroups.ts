import { readdirSync, rmdirSync } from 'node:fs'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { errnoOf } from '../../src/base/errors.ts'

/** Killed processes end a moment later. */
const WAIT_MS = 1000
const PAUSE_MS = 10

/** Removes cgroups with those below them. One with processes stays, because a test that expects none looks for them. */
export async function removeCgroups(folders: readonly string[]): Promise<void> {
  const until = performance.now() + WAIT_MS
  for (const folder of folders) await removeCgroup(folder, until)
}

async function removeCgroup(folder: string, until: number): Promise<void> {
  for (const entry of readdirSync(folder, { withFileTypes: true })) {
    if (entry.isDirectory()) await removeCgroup(join(folder, entry.name), until)
  }
  while (!isRemoved(folder) && performance.now() < until) await sleep(PAUSE_MS)
}

function isRemoved(folder: string): boolean {
  try {
    rmdirSync(folder)
    return true
  } catch (error) {
    if (errnoOf(error) === 'EBUSY') return false
    throw error
  }
}
