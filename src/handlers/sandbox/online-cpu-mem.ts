import { AgentError, messageOf } from '../../base/errors.ts'
import type { OnlineCPUMemRequest } from '../../gen/agent.ts'
import type { Call } from '../../state/request.ts'
import { onlineMemory } from '../guest/memory-blocks.ts'
import { listOnlineCpus, onlineCpus } from '../guest/online-cpus.ts'
import type { SandboxContext } from './context.ts'

/** OnlineCPUMem: brings CPUs online and adds them to the containers' cpusets, then memory unless `cpu_only`. */
export async function onlineCpuMem(
  context: Pick<SandboxContext, 'os' | 'containers' | 'containersCgroup'>,
  { nbCpus, cpuOnly }: OnlineCPUMemRequest,
  { signal }: Pick<Call, 'signal'>,
): Promise<void> {
  const { os } = context
  if (nbCpus > 0) {
    await onlineCpus(os, nbCpus, signal)
    await refreshCpusets(context)
  }
  if (cpuOnly) return
  try {
    await onlineMemory(os.files)
  } finally {
    await context.containersCgroup.limitAgain()
  }
}

/** Tries to update every container, then throws one error for all failures. */
async function refreshCpusets({ os, containers }: Pick<SandboxContext, 'os' | 'containers'>): Promise<void> {
  const online = await listOnlineCpus(os.files)
  const failures: unknown[] = []
  for (const { state } of containers.list()) {
    if (!('parts' in state)) continue
    const { cgroup, spec } = state.parts
    const cpus = spec.current.Linux.Resources?.CPU?.Cpus ?? ''
    await cgroup.refreshCpus(cpus, online).catch((error) => failures.push(error))
  }
  if (failures.length === 0) return
  const text = `CPUs not given to containers: ${failures.map(messageOf).join('; ')}`
  throw new AgentError('INTERNAL', text, { cause: failures[0] })
}
