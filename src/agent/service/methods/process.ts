import type { AgentServiceDefinition } from '../../../gen/agent.ts'
import { execProcess } from '../../../handlers/process/exec-process.ts'
import { signalProcess } from '../../../handlers/process/signal-process.ts'
import { waitProcess } from '../../../handlers/process/wait-process.ts'
import type { SandboxContext } from '../../../handlers/sandbox/context.ts'
import { servedWith } from '../../../handlers/sandbox/usable-containers.ts'
import { cancellable, finishing, NO_DISK, type ServiceMethods, taking } from '../rpc.ts'

export function processMethods(sandbox: SandboxContext) {
  const served = servedWith(sandbox)
  return {
    execProcess: cancellable('journaled', served(execProcess), { answeredByRecord: true }),
    signalProcess: finishing('at-most-once', served(signalProcess), {
      ...NO_DISK,
      share: 'reserved',
      turn: 'brief',
    }),
    // Journaled: once an answer is delivered, a later WaitProcess ends NOT_FOUND.
    waitProcess: taking(served(waitProcess), { ...NO_DISK, share: 'waiting', turn: 'wait', key: 'ends' }),
  } satisfies Partial<ServiceMethods<typeof AgentServiceDefinition>>
}
