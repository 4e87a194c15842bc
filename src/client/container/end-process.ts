import { AgentError } from '../../base/errors.ts'
import type { Agent } from './container-session.ts'
import type { ProcessKey } from './stdio.ts'

const END_MS = 1000

/** Signals a process and collects its status. Gives up after a second, or without an agent. */
export async function endProcess(agent: Agent, process: ProcessKey, signal: number): Promise<void> {
  const options = { timeoutMs: END_MS }
  try {
    await agent.signalProcess({ ...process, signal }, options)
    await agent.waitProcess(process, options)
  } catch (error) {
    if (!(error instanceof AgentError)) throw error
  }
}
