import { execProcessRequest } from '../../test/support/containers/container-requests.ts'
import type { AgentPod } from '../../test/support/host/agent-pod.ts'
import { type BareRuntime, type RuntimeKind, startBareRuntime } from './bare/bare-runtime.ts'
import { benchPod } from './bench-pod.ts'

export interface RuntimePair {
  /** Has one idle container, `model`. */
  readonly pod: AgentPod
  readonly bare: BareRuntime
}

export async function withRuntime<T>(kind: RuntimeKind, work: (pair: RuntimePair) => Promise<T>): Promise<T> {
  const pod = await benchPod({ runtime: kind })
  try {
    await pod.run('model', ['/bin/sleep', '1000000'])
    const bare = await startBareRuntime(pod, kind, 'model')
    try {
      return await work({ pod, bare })
    } finally {
      bare.stop()
    }
  } finally {
    await pod.stop()
  }
}

export async function execTrue(agent: AgentPod['agent'], containerId: string, execId: string): Promise<void> {
  const process = { Capabilities: undefined }
  await agent.execProcess(execProcessRequest(containerId, execId, ['/bin/true'], { process }))
  const { status } = await agent.waitProcess({ containerId, execId })
  if (status !== 0) throw new Error(`true ended with ${status}`)
}

export async function elapsedMs(action: () => Promise<unknown>): Promise<number> {
  const begin = performance.now()
  await action()
  return performance.now() - begin
}
