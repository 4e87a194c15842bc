import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { type AgentProcess, startAgent } from '../../support/host/agent-process.ts'
import { underAttack } from '../../support/hostile/attack.ts'
import { hostTarget } from '../../support/hostile/host-target.ts'
import { endChild } from '../../support/processes.ts'

const PROGRAM = join(import.meta.dirname, 'hold-memory.ts')

/** The sum of the limits, the agent itself (60 MiB, 75 with gRPC), its heap, and what malloc keeps. */
const MOST_MIB = 320

describe('many connections that make the agent hold memory', () => {
  let started: AgentProcess

  beforeEach(async () => {
    started = await startAgent()
  })
  afterEach(() => started.stop())

  async function hold(way: string, connections: number): Promise<void> {
    const child = spawn(process.execPath, [PROGRAM, started.path, way, String(connections)], {
      stdio: ['pipe', 'pipe', 'inherit'],
    })
    try {
      expect(String((await once(child.stdout, 'data'))[0])).toBe('done\n')
    } finally {
      await endChild(child)
    }
  }

  async function inUse(): Promise<number> {
    // While the calls of the attack are open, only calls in the reserve have room.
    const answer = await started.agent.getMetrics({}).catch(() => undefined)
    if (answer === undefined) return Number.POSITIVE_INFINITY
    const { metrics } = answer
    const used = (name: string) =>
      Number(new RegExp(`^microvm_agent_limit_used\\{item="${name}"\\} (\\d+)$`, 'm').exec(metrics)?.[1])
    return used('calls') - 1 + used('elements') + used('streams') + Math.max(0, used('bytes') - 100)
  }

  /** Waits up to ten seconds until the agent notices that its callers are gone. */
  async function left(): Promise<number> {
    const until = performance.now() + 10_000
    let used = await inUse()
    while (used > 0 && performance.now() < until) used = await inUse()
    return used
  }

  it.each([
    ['incomplete frames', 40],
    ['requests of calls that wait', 40],
    ['calls that wait', 20],
    ['answers that nobody reads', 20],
    ['incomplete gRPC messages', 40],
    ['gRPC calls that wait', 20],
    ['gRPC answers without a window', 20],
    ['reflection without a window', 20],
    ['event streams without a window', 20],
    ['SETTINGS and PING frames', 20],
  ])('%s, on %d of them', async (way, connections) => {
    const target = await hostTarget(started)
    const pid = started.agentPid()
    const attack = () => hold(way, connections)
    const { figures } = await underAttack(way, target, attack, left)
    expect(figures.left).toBe(0)
    expect(started.agentPid()).toBe(pid)
    expect(figures.peakMib).toBeLessThan(MOST_MIB)
    target.close()
  })
})
