import { AgentError, messageOf } from '../../base/errors.ts'
import type { OnlineCPUMemRequest } from '../../gen/agent.ts'
import { onlineMemory } from '../guest/memory-blocks.ts'
import { listOnlineCpus, onlineCpus } from '../guest/online-cpus.ts'
import type { SandboxContext } from './context.ts'

/**
 * OnlineCPUMem (behaviour spec, section C.27): brings plugged-in CPUs online until there are `nb_cpus` in all, lets the
 * containers have them, and brings plugged-in memory online unless `cpu_only`. `nb_cpus` 0 leaves CPUs alone.
 */
export async function onlineCpuMem(
  context: SandboxContext,
  { nbCpus, cpuOnly }: OnlineCPUMemRequest,
  signal: AbortSignal,
): Promise<void> {
  const { os } = context
  if (nbCpus > 0) {
    await onlineCpus(os, nbCpus, signal)
    await refreshCpusets(context)
  }
  if (!cpuOnly) await onlineMemory(os.files)
}

/** Every container is tried, whatever becomes of the others. */
async function refreshCpusets({ os, containers }: SandboxContext): Promise<void> {
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
