import { spawnSync } from 'node:child_process'
import { copyFileSync, cpSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { buildAgentCtl } from '../../src/build/agent-ctl.ts'
import { pinnedNode } from '../../src/build/project.ts'
import { makeTemporaryFolder, removeTemporaryFolder } from '../../src/build/temporary-folder.ts'
import { startPod } from '../../test/support/host/agent-pod.ts'
import { benchEnvironment, median, report } from '../support/figure.ts'

/** `agent-ctl ps` from its start to its end, as installed and as one file, against the same Node without a program. */
const ROUNDS = 25

const folder = makeTemporaryFolder(tmpdir())
const built = await buildAgentCtl()
cpSync(join(built, 'installed'), join(folder, 'installed'), { recursive: true })
copyFileSync(join(built, 'agent-ctl.cjs'), join(folder, 'agent-ctl.cjs'))
const pod = await startPod()
try {
  await pod.run('web', ['sleep', '1000'])
  const words = ['-a', `unix://${pod.started.path}`, 'ps']
  const programs = {
    bare: ['-e', '0'],
    installed: [join(folder, 'installed/agent-ctl.cjs'), ...words],
    file: [join(folder, 'agent-ctl.cjs'), ...words],
  }
  const times: Record<keyof typeof programs, number[]> = { bare: [], installed: [], file: [] }
  for (let round = 0; round < ROUNDS; round++) {
    times.bare.push(runMs(programs.bare))
    times.installed.push(runMs(programs.installed))
    times.file.push(runMs(programs.file))
  }
  const floor = median(times.bare)
  const common = { unit: 'ms', floor, limit: 2 } as const
  report({ figure: 'agent-ctl ps, as installed', value: median(times.installed), ...common })
  report({ figure: 'agent-ctl ps, as one file', value: median(times.file), ...common })
} finally {
  await pod.stop()
  removeTemporaryFolder(folder)
}

function runMs(args: readonly string[]): number {
  const begin = performance.now()
  const { status, stderr } = spawnSync(pinnedNode(), args, { env: benchEnvironment() })
  if (status !== 0) throw new Error(`${args.join(' ')}: ${stderr}`)
  return performance.now() - begin
}
