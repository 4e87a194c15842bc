import { join } from 'node:path'
import { messageOf } from '../src/base/errors.ts'
import { projectRoot } from '../src/build/project.ts'
import { makeArchive } from '../src/image/agent-archive.ts'

/** `npm run dist`: writes the agent's archive for other images into dist/ and prints its path. */
try {
  console.log(await makeArchive(join(projectRoot, 'dist'), (line) => console.error(`dist: ${line}`)))
} catch (error) {
  console.error(`dist: ${messageOf(error)}`)
  process.exitCode = 1
}
