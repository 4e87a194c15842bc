import type { AgentServiceDefinition } from '../../../gen/agent.ts'
import { getOomEvent } from '../../../handlers/cgroup/oom-events.ts'
import type { SandboxContext } from '../../../handlers/sandbox/context.ts'
import { createSandbox } from '../../../handlers/sandbox/create-sandbox.ts'
import { destroySandbox } from '../../../handlers/sandbox/destroy-sandbox.ts'
import { onlineCpuMem } from '../../../handlers/sandbox/online-cpu-mem.ts'
import { removeStaleShareMounts } from '../../../handlers/sandbox/remove-stale-mounts.ts'
import { servedWith } from '../../../handlers/sandbox/usable-containers.ts'
import { cancellable, finishing, NO_DISK, type ServiceMethods, taking } from '../rpc.ts'

export function sandboxMethods(sandbox: SandboxContext) {
  const served = servedWith(sandbox)
  return {
    createSandbox: cancellable('journaled', (request, call) => createSandbox(sandbox, request, call)),
    destroySandbox: finishing('journaled', (request, call) => destroySandbox(sandbox, request, call), {
      share: 'reserved',
      turn: 'brief',
      whileFrozen: 'thaw',
    }),

    // Journaled, because the answer removes the event from the queue.
    getOOMEvent: taking(served(getOomEvent), { ...NO_DISK, turn: 'wait' }),
    onlineCPUMem: cancellable('idempotent', (request, call) => onlineCpuMem(sandbox, request, call), NO_DISK),
    removeStaleVirtiofsShareMounts: cancellable('idempotent', (request, call) =>
      removeStaleShareMounts(sandbox, request, call),
    ),
  } satisfies Partial<ServiceMethods<typeof AgentServiceDefinition>>
}
