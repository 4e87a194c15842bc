import { tmpdir } from 'node:os'
import { afterAll } from 'vitest'
import { makeTemporaryFolder, removeTemporaryFolder } from '../../src/build/temporary-folder.ts'

const folders: string[] = []

// Registered for the importing file, so it runs after the hooks of all its suites.
afterAll(() => {
  for (const folder of folders.splice(0)) removeTemporaryFolder(folder)
})

/** A new folder, which is removed after the last test of the file. */
export function temporaryFolder(): string {
  const folder = makeTemporaryFolder(tmpdir())
  folders.push(folder)
  return folder
}
