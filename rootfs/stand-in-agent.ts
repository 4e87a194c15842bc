import { copyFileSync, existsSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { buildAgent as buildRealAgent } from '../scripts/build-agent.ts'
import { buildVminit } from '../scripts/build-native.ts'
import { cached, projectRoot } from '../scripts/cache.ts'

const STAND_IN = `
const seconds = () => require('node:fs').readFileSync('/proc/uptime', 'utf8').split(' ')[0]
console.log('stand-in agent after ' + seconds() + ' s, arguments ' + process.argv.slice(2).join(' '))
setInterval(() => {}, 1e9)
`

/** The agent's folder, or one with a stand-in for the agent while it has no entry point. */
export async function buildAgent(): Promise<string> {
  if (existsSync(join(projectRoot, 'src/agent/main.ts'))) return buildRealAgent()
  const vminit = await buildVminit()
  return cached('stand-in-agent', { values: [STAND_IN, vminit] }, async (target) => {
    writeFileSync(join(target, 'agent.cjs'), STAND_IN)
    writeFileSync(join(target, 'addon.node'), '')
    writeFileSync(join(target, 'descriptors.binpb'), '')
    copyFileSync(vminit, join(target, 'vminit'))
  })
}
