import { tmpdir } from 'node:os'
import { afterAll, vi } from 'vitest'
import { makeTemporaryFolder, removeTemporaryFolder } from '../../src/build/temporary-folder.ts'
import { processesIn, signalThose } from './processes.ts'

const folders: string[] = []

// Registered for the importing file, so it runs after the hooks of all its suites.
afterAll(async () => {
  for (const folder of folders.splice(0)) {
    await endProcessesIn(folder)
    removeTemporaryFolder(folder)
  }
})

/** A new folder, which is removed after the last test of the file, with the processes that a failed test left in it. */
export function temporaryFolder(): string {
  const folder = makeTemporaryFolder(tmpdir())
  folders.push(folder)
  return folder
}

async function endProcessesIn(folder: string): Promise<void> {
  const left = processesIn(folder)
  if (left.length === 0) return
  signalThose(
    left.map(({ pid }) => pid),
    'SIGKILL',
  )
  await vi.waitUntil(() => processesIn(folder).length === 0, { interval: 5, timeout: 20_000 })
}
