import type { RenameRequest } from '../../../src/gen/microvm/agent/v1/lifecycle.ts'
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
  ttyWinResize,
  writeStdin,
} from '../../../src/handlers/process/stdio-calls.ts'
import { waitProcess } from '../../../src/handlers/process/wait-process.ts'
import type { SandboxContext } from '../../../src/handlers/sandbox/context.ts'
import { createSandbox } from '../../../src/handlers/sandbox/create-sandbox.ts'
import { destroySandbox } from '../../../src/handlers/sandbox/destroy-sandbox.ts'
import { onlineCpuMem } from '../../../src/handlers/sandbox/online-cpu-mem.ts'
import { removeStaleShareMounts } from '../../../src/handlers/sandbox/remove-stale-mounts.ts'
import { type OpenCall, rename } from '../../../src/handlers/sandbox/rename.ts'
import { restoreSandbox } from '../../../src/handlers/sandbox/restore-sandbox.ts'
import { usableContainers } from '../../../src/handlers/sandbox/usable-containers.ts'
import type { Call, Taken } from '../../../src/state/request.ts'
import { callOf } from './call.ts'

export type SandboxCalls = ReturnType<typeof boundCalls>

/** Container calls fail when `usableContainers` throws, as in the declarations. */
export function boundCalls(context: SandboxContext, openCalls: OpenCall[]) {
  const any = bindTo(() => context)
  const usable = bindTo(() => usableContainers(context))
  return {
    rename: any((sandbox: SandboxContext, request: RenameRequest, call: Call) =>
      rename(sandbox, request, call, () => openCalls),
    ),
    restore: () => restoreSandbox(context),
    createSandbox: any(createSandbox),
    destroySandbox: any(destroySandbox),
    removeStaleShareMounts: any(removeStaleShareMounts),
    onlineCpuMem: any(onlineCpuMem),
    createContainer: usable(createContainer),
    startContainer: usable(startContainer),
    removeContainer: usable(removeContainer),
    updateContainer: usable(updateContainer),
    statsContainer: usable(statsContainer),
    getOomEvent: usable(getOomEvent),
    getDiagnosticData: usable(getDiagnosticData),
    pauseContainer: usable(pauseContainer),
    resumeContainer: usable(resumeContainer),
    execProcess: usable(execProcess),
    signalProcess: usable(signalProcess),
    waitProcess: usable(waitProcess),
    writeStdin: usable(writeStdin),
    readStdout: usable(readStdout),
    readStderr: usable(readStderr),
    closeStdin: usable(closeStdin),
    ttyWinResize: usable(ttyWinResize),
  }
}

type Told<Answer> = Answer extends object ? Answer & Taken : Answer

function bindTo(context: () => SandboxContext) {
  return <Request, Answer>(
    serve: (context: SandboxContext, request: Request, call: Call) => Promise<Answer>,
  ) =>
    async (
      request: Request,
      signal: AbortSignal,
      number?: bigint,
      takes?: (one: Taken) => void,
    ): Promise<Told<Answer>> => {
      const taken: Taken[] = []
      const call = { ...callOf(signal, number), takes: takes ?? ((one: Taken) => void taken.push(one)) }
      const answer = await serve(context(), request, call)
      const told =
        typeof answer !== 'object' || answer === null || 'delivered' in answer
          ? answer
          : {
              ...answer,
              delivered: () => {
                for (const one of taken) one.delivered()
              },
              dropped: () => {
                for (const one of taken) one.dropped()
              },
            }
      return told as Told<Answer>
    }
}
