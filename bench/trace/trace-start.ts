import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { cpSync, readFileSync, realpathSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { buildAgent } from '../../src/build/agent.ts'
import { withTemporaryFolder } from '../../src/build/temporary-folder.ts'
import { agentCommand } from '../../test/support/host/agent-process.ts'
import { benchEnvironment, median } from '../support/figure.ts'

/** `npm run bench -- trace start`: the milliseconds of each phase of a start, as a Markdown table of medians. */
const ROUNDS = 15

const PHASES = [
  'Node itself',
  "Node's loader, the start script and the addon",
  "V8's code cache, unpacked",
  "Node's modules and own modules",
  'settings, policy, broker, until it listens',
  'boot and restore',
] as const

/** Preloaded, it writes the time since the process began at which each phase but the last two has ended. */
const CLOCK = `
const fs = require('node:fs')
const vm = require('node:vm')
const ends = [performance.now()]
const { dlopen } = process
process.dlopen = (...words) => {
  dlopen.apply(process, words)
  ends.push(performance.now())
}
vm.Script = class extends vm.Script {
  constructor(...words) {
    super(...words)
    ends.push(performance.now())
  }
}
const { existsSync } = fs
fs.existsSync = (path) => {
  if (path.endsWith('/addon.node')) ends.push(performance.now())
  return existsSync(path)
}
process.on('exit', () => fs.writeFileSync(process.env.ENDS, JSON.stringify([performance.timeOrigin, ends])))
`

await withTemporaryFolder(tmpdir(), async (folder) => {
  const agent = join(folder, 'agent')
  cpSync(realpathSync(await buildAgent()), agent, { recursive: true })
  const clock = join(folder, 'clock.cjs')
  writeFileSync(clock, CLOCK)
  const rounds: (readonly number[])[] = []
  for (let round = 0; round < ROUNDS; round += 1)
    rounds.push(await traceStart(agent, clock, join(folder, `${round}`)))
  const rows = PHASES.map((phase, index) => [
    phase,
    median(rounds.map((phases) => phases[index] ?? 0)).toFixed(1),
  ])
  const lines = [['phase', 'ms'], ['--', '--'], ...rows]
  process.stdout.write(`${lines.map((cells) => `| ${cells.join(' | ')} |`).join('\n')}\n`)
})

/** Returns the milliseconds of each phase. */
async function traceStart(agent: string, clock: string, file: string): Promise<readonly number[]> {
  const [program, ...words] = agentCommand(agent, ['--server-addr', `unix://${file}.sock`])
  const env = { ...benchEnvironment(), NODE_OPTIONS: `--require ${clock}`, ENDS: file }
  const child = spawn(program, words, { env, stdio: ['ignore', 'pipe', 'inherit'] })
  const closed = once(child, 'close')
  const logged: number[] = []
  for await (const line of createInterface(child.stdout)) {
    const { msg, ts } = JSON.parse(line)
    if (msg === 'listening' || msg === 'booted') logged.push(Date.parse(ts))
    if (msg === 'booted') child.kill()
  }
  await closed
  const [origin, noted] = JSON.parse(readFileSync(file, 'utf8'))
  const ends: readonly number[] = [...noted, ...logged.map((at) => at - origin)]
  return ends.map((end, index) => end - (ends[index - 1] ?? 0))
}
