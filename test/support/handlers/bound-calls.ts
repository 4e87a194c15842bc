import type { DestroySandboxRequest, SignalProcessRequest } from '../../../src/gen/agent.ts'
import { getOomEvent } from '../../../src/handlers/cgroup/oom-events.ts'
import { createContainer } from '../../../src/handlers/container/create-container.ts'
import { getDiagnosticData } from '../../../src/handlers/container/get-diagnostic-data.ts'
import { pauseContainer, resumeContainer } from '../../../src/handlers/container/pause-container.ts'
import { removeContainer } from '../../../src/handlers/container/remove-container.ts'
import { startContainer } from '../../../src/handlers/container/start-container.ts'
import { statsContainer } from '../../../src/handlers/container/stats-container.ts'
import { updateContainer } from '../../../src/handlers/container/update-container.ts'
import { execProcess } from '../../../src/handlers/process/exec-process.ts'
import { signalProcess } from '../../../src/handlers/process/signal-process.ts'
import {
  closeStdin,
  readStderr,
  readStdout,
  type StreamCall,
  ttyWinResize,
  writeStdin,
} from '../../../src/handlers/process/stdio-calls.ts'
import { waitProcess } from '../../../src/handlers/process/wait-process.ts'
import type { SandboxContext } from '../../../src/handlers/sandbox/context.ts'
import { createSandbox } from '../../../src/handlers/sandbox/create-sandbox.ts'
import { destroySandbox } from '../../../src/handlers/sandbox/destroy-sandbox.ts'
import { onlineCpuMem } from '../../../src/handlers/sandbox/online-cpu-mem.ts'
import { removeStaleShareMounts } from '../../../src/handlers/sandbox/remove-stale-mounts.ts'
import { restoreSandbox } from '../../../src/handlers/sandbox/restore-sandbox.ts'
import { usableContainers } from '../../../src/handlers/sandbox/usable-containers.ts'

/** The functions behind the RPCs of a sandbox, its containers and processes, bound to one context. */
export type SandboxCalls = ReturnType<typeof boundCalls>

/** Binds them as their declarations do: container calls fail when `usableContainers` throws. */
export function boundCalls(context: SandboxContext) {
  const any = bindTo(() => context)
  const usable = bindTo(() => usableContainers(context))
  return {
    restore: (source?: Parameters<typeof restoreSandbox>[1]) => restoreSandbox(context, source),
    createSandbox: any(createSandbox),
    destroySandbox: (_request: DestroySandboxRequest, signal: AbortSignal) => destroySandbox(context, signal),
    removeStaleShareMounts: any(removeStaleShareMounts),
    onlineCpuMem: any(onlineCpuMem),
    createContainer: usable(createContainer),
    startContainer: usable(startContainer),
    removeContainer: usable(removeContainer),
    updateContainer: usable(updateContainer),
    statsContainer: usable(statsContainer),
    getOomEvent: async (_request: object, signal: AbortSignal) =>
      getOomEvent(usableContainers(context), signal),
    getDiagnosticData: usable(getDiagnosticData),
    pauseContainer: usable(pauseContainer),
    resumeContainer: usable(resumeContainer),
    execProcess: usable(execProcess),
    signalProcess: usable((called, request: SignalProcessRequest) => signalProcess(called, request)),
    waitProcess: usable(waitProcess),
    writeStdin: usable(withoutNumber(writeStdin)),
    readStdout: usable(withoutNumber(readStdout)),
    readStderr: usable(withoutNumber(readStderr)),
    closeStdin: usable(closeStdin),
    ttyWinResize: usable(ttyWinResize),
  }
}

/** A stream's call as it comes without a broker. */
function withoutNumber<Request, Answer>(
  call: (context: SandboxContext, request: Request, call: StreamCall) => Promise<Answer>,
) {
  return (context: SandboxContext, request: Request, signal: AbortSignal) =>
    call(context, request, { signal })
}

function bindTo(context: () => SandboxContext) {
  return <Request, Answer>(
    call: (
      context: SandboxContext,
      request: Request,
      signal: AbortSignal,
      number?: bigint,
    ) => Promise<Answer>,
  ) =>
    async (request: Request, signal: AbortSignal, number?: bigint): Promise<Answer> =>
      call(context(), request, signal, number)
}
