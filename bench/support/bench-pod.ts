import { readdirSync } from 'node:fs'
import { setPriority } from 'node:os'
import { type AgentPod, startPod } from '../../test/support/host/agent-pod.ts'

/** A pod whose agent has the priority of an agent in a guest. */
export async function benchPod(options: Parameters<typeof startPod>[0] = {}): Promise<AgentPod> {
  const pod = await startPod(options)
  giveAgentPriority(pod.started.agentPid())
  return pod
}

/** Gives a process the priority of an agent in a guest (src/agent/boot/own-process.ts). */
export function giveAgentPriority(pid: number): void {
  for (const thread of readdirSync(`/proc/${pid}/task`)) setPriority(Number(thread), -10)
}
