import { join } from 'node:path'
import { messageOf } from '../src/base/errors.ts'
import { writeDaemonUnit } from '../src/build/daemon-unit.ts'
import { writeMicrovm } from '../src/build/microvm.ts'
import { projectRoot } from '../src/build/project.ts'
import { makeArchive } from '../src/image/archives/agent-archive.ts'
import { makeCtlArchive } from '../src/image/archives/ctl-archive.ts'
import { ensurePolicyAddon } from '../src/image/policy-addon.ts'

/**
 * `npm run dist`: writes the agent's archive for other images, agent-ctl, microvm, and the unit of its daemon into dist/ and
 * prints their paths.
 */
try {
  const folder = join(projectRoot, 'dist')
  const progress = (line: string) => console.error(`dist: ${line}`)
  console.log(await makeArchive(folder, progress))
  const microvm = await writeMicrovm(join(folder, 'microvm'))
  for (const path of [microvm, writeDaemonUnit(folder, microvm)]) console.log(path)
  for (const path of await makeCtlArchive(folder, await ensurePolicyAddon(progress))) console.log(path)
} catch (error) {
  console.error(`dist: ${messageOf(error)}`)
  process.exitCode = 1
}
