import { readdirSync } from 'node:fs'
import { setPriority } from 'node:os'
import { type AgentPod, startPod } from '../../test/support/host/agent-pod.ts'
import { processes } from '../../test/support/processes.ts'

export async function benchPod(options: Parameters<typeof startPod>[0] = {}): Promise<AgentPod> {
  const pod = await startPod(options)
  giveAgentPriority(pod.started.agentPid())
  return pod
}

/** Sets the priority that the agent gives itself in a guest (src/agent/boot/own-process.ts). */
export function giveAgentPriority(pid: number): void {
  for (const thread of readdirSync(`/proc/${pid}/task`)) setPriority(Number(thread), -10)
}

export function brokerOf(vminit: number): number {
  const broker = processes().find(({ name, parent }) => name === 'api-broker' && parent === vminit)
  if (broker === undefined) throw new Error('vminit has no broker')
  return broker.pid
}
