import { type ChildProcess, spawn } from 'node:child_process'
import { cpSync, readFileSync, realpathSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { buildAgent } from '../../src/build/agent.ts'
import { makeTemporaryFolder, removeTemporaryFolder } from '../../src/build/temporary-folder.ts'
import { agentBelow } from '../../test/support/host/agent-process.ts'
import { endChild } from '../../test/support/processes.ts'
import { bareStartMs } from '../support/bare/bare-start.ts'
import { benchEnvironment, median, report } from '../support/figure.ts'
import { startListening } from '../support/listening-agent.ts'

/** Time from vminit's start until the agent listens, and its idle memory, against the same Node binary without a program. */
const ROUNDS = 15
const MEMORY_ROUNDS = 5
const SETTLE_MS = 300
/** The agent locks its program in memory, and drops the rest of it, a second after its boot. */
const LOCKED_MS = 1500

const folder = makeTemporaryFolder(tmpdir())
// Installed as in a guest: without a package.json above it, which Node would read and parse.
const agent = join(folder, 'agent')
cpSync(realpathSync(await buildAgent()), agent, { recursive: true })
const node = join(agent, 'node')
try {
  await measure()
} finally {
  removeTemporaryFolder(folder)
}

async function measure(): Promise<void> {
  const starts: number[] = []
  const bareStarts: number[] = []
  const memory: number[] = []
  const bareMemory: number[] = []
  for (let round = 0; round < ROUNDS; round++) {
    bareStarts.push(await bareStartMs(node))
    const socket = join(folder, `agent-${round}.sock`)
    const { vminit, ms } = await startListening(agent, socket)
    starts.push(ms)
    if (round < MEMORY_ROUNDS) memory.push(await idleMemoryMib(agentBelow(vminit.pid ?? 0), LOCKED_MS))
    await endChild(vminit)
    if (round >= MEMORY_ROUNDS) continue
    const bare = start(['-e', 'setInterval(()=>{},1e9)'])
    bareMemory.push(await idleMemoryMib(bare.pid ?? 0, SETTLE_MS))
    await endChild(bare, 'SIGKILL')
  }
  const startFigure = { value: median(starts), floor: median(bareStarts), limit: 1.8 }
  report({ figure: 'agent start to listening', unit: 'ms', ...startFigure })
  const memoryFigure = { value: median(memory), floor: median(bareMemory), limit: 1.25 }
  report({ figure: 'agent idle memory (RSS)', unit: 'MiB', ...memoryFigure })
}

function start(args: readonly string[]): ChildProcess {
  return spawn(node, args, { env: benchEnvironment(), stdio: ['ignore', 'pipe', 'inherit'] })
}

async function idleMemoryMib(pid: number, afterMs: number): Promise<number> {
  await new Promise((resolve) => setTimeout(resolve, afterMs))
  const status = readFileSync(`/proc/${pid}/status`, 'utf8')
  return Number(/VmRSS:\s+(\d+)/.exec(status)?.[1]) / 1024
}
