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
  const ended = () => {
    const left = processesIn(folder).map(({ pid }) => pid)
    signalThose(left, 'SIGKILL')
    return left.length === 0
  }
  await vi.waitUntil(ended, { interval: 5, timeout: 20_000 })
}
