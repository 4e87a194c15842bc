import { tmpdir } from 'node:os'
import { afterAll } from 'vitest'
import { makeTemporaryFolder, removeTemporaryFolder } from '../../src/build/temporary-folder.ts'

const folders: string[] = []

// Registered for the file that imports this module, so it runs after the hooks of all its suites.
afterAll(() => {
  for (const folder of folders.splice(0)) removeTemporaryFolder(folder)
})

/** A new empty folder, which is removed with its content after the last test of the file. */
export function temporaryFolder(): string {
  const folder = makeTemporaryFolder(tmpdir())
  folders.push(folder)
  return folder
}
