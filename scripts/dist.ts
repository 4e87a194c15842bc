import { join } from 'node:path'
import { messageOf } from '../src/base/errors.ts'
import { writeDaemonUnit } from '../src/build/daemon-unit.ts'
import { projectRoot } from '../src/build/project.ts'
import { makeArchive } from '../src/image/archives/agent-archive.ts'
import { makeCtlArchive } from '../src/image/archives/ctl-archive.ts'
import { ensurePolicyAddon } from '../src/image/policy-addon.ts'

/**
 * `npm run dist`: writes the agent's archive for other images, agent-ctl, and the unit of the daemon into dist/ and prints
 * their paths.
 */
try {
  const folder = join(projectRoot, 'dist')
  const progress = (line: string) => console.error(`dist: ${line}`)
  console.log(await makeArchive(folder, progress))
  console.log(writeDaemonUnit(folder))
  for (const path of await makeCtlArchive(folder, await ensurePolicyAddon(progress))) console.log(path)
} catch (error) {
  console.error(`dist: ${messageOf(error)}`)
  process.exitCode = 1
}
