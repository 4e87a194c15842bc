import { readdirSync } from 'node:fs'
import { setPriority } from 'node:os'
import { type AgentPod, startPod } from '../../test/support/host/agent-pod.ts'

/** A pod whose agent has the priority of an agent in a guest (src/agent/boot/own-process.ts). */
export async function benchPod(options: Parameters<typeof startPod>[0] = {}): Promise<AgentPod> {
  const pod = await startPod(options)
  for (const thread of readdirSync(`/proc/${pod.started.agentPid()}/task`)) setPriority(Number(thread), -10)
  return pod
}
