import { AgentError } from '../../base/errors.ts'
import type {
  CloseStdinRequest,
  CreateContainerRequest,
  CreateSandboxRequest,
  DestroySandboxRequest,
  ExecProcessRequest,
  GetDiagnosticDataRequest,
  GetOOMEventRequest,
  OnlineCPUMemRequest,
  PauseContainerRequest,
  ReadStreamRequest,
  RemoveContainerRequest,
  RemoveStaleVirtiofsShareMountsRequest,
  ResumeContainerRequest,
  SignalProcessRequest,
  StartContainerRequest,
  StatsContainerRequest,
  StatsContainerResponse,
  TtyWinResizeRequest,
  UpdateContainerRequest,
  WaitProcessRequest,
  WriteStreamRequest,
} from '../../gen/agent.ts'
import { OomEvents } from '../cgroup/oom-events.ts'
import { createContainer } from '../container/create-container.ts'
import { GuestSysctls } from '../container/guest-sysctls.ts'
import { pauseContainer, resumeContainer } from '../container/pause-container.ts'
import { ContainerRegistry } from '../container/registry.ts'
import { removeContainer } from '../container/remove-container.ts'
import { startContainer } from '../container/start-container.ts'
import { statsContainer } from '../container/stats-container.ts'
import { updateContainer } from '../container/update-container.ts'
import { ociRuntime } from '../oci-runtime/oci-runtime.ts'
import { execProcess } from '../process/exec-process.ts'
import {
  closeStdin,
  type ProcessEnd,
  readStderr,
  readStdout,
  ttyWinResize,
  waitProcess,
  writeStdin,
} from '../process/process-calls.ts'
import { signalProcess } from '../process/signal-process.ts'
import type { OutputRead } from '../stdio/process-streams.ts'
import type { SandboxContext } from './context.ts'
import { cleanUpAfterCrash } from './crash-recovery.ts'
import { createSandbox } from './create-sandbox.ts'
import type { SandboxDependencies } from './dependencies.ts'
import { destroySandbox } from './destroy-sandbox.ts'
import { getDiagnosticData } from './get-diagnostic-data.ts'
import { getOomEvent, type OomEventTaken } from './get-oom-event.ts'
import { onlineCpuMem } from './online-cpu-mem.ts'
import { removeStaleShareMounts } from './remove-stale-mounts.ts'
import { SandboxState } from './sandbox-state.ts'

/**
 * The calls of the sandbox, its containers and their processes (behaviour spec, sections C.1 to C.7, C.9 to
 * C.16, C.25 to C.27, C.33). Each takes the request and the call's signal, and throws `AgentError`s with the codes of
 * section B.5. When the signal fires, waits and reads end, creations undo themselves; start, signal, pause,
 * resume, update, remove and destroy run to their end without the caller.
 */
export interface SandboxHandlers {
  createSandbox(request: CreateSandboxRequest, signal: AbortSignal): Promise<void>
  destroySandbox(request: DestroySandboxRequest, signal: AbortSignal): Promise<void>
  createContainer(request: CreateContainerRequest, signal: AbortSignal): Promise<void>
  startContainer(request: StartContainerRequest, signal: AbortSignal): Promise<void>
  removeContainer(request: RemoveContainerRequest, signal: AbortSignal): Promise<void>
  updateContainer(request: UpdateContainerRequest, signal: AbortSignal): Promise<void>
  statsContainer(request: StatsContainerRequest, signal: AbortSignal): Promise<StatsContainerResponse>
  pauseContainer(request: PauseContainerRequest, signal: AbortSignal): Promise<void>
  resumeContainer(request: ResumeContainerRequest, signal: AbortSignal): Promise<void>
  execProcess(request: ExecProcessRequest, signal: AbortSignal): Promise<void>
  signalProcess(request: SignalProcessRequest, signal: AbortSignal): Promise<void>
  waitProcess(request: WaitProcessRequest, signal: AbortSignal): Promise<ProcessEnd>
  /** Waits for the next container that runs out of memory. */
  getOomEvent(request: GetOOMEventRequest, signal: AbortSignal): Promise<OomEventTaken>
  removeStaleShareMounts(request: RemoveStaleVirtiofsShareMountsRequest, signal: AbortSignal): Promise<void>
  /** The text asked for; empty when there is none. */
  getDiagnosticData(request: GetDiagnosticDataRequest, signal: AbortSignal): Promise<string>
  /** Answers how many bytes were taken: all of them. */
  writeStdin(request: WriteStreamRequest, signal: AbortSignal): Promise<number>
  readStdout(request: ReadStreamRequest, signal: AbortSignal): Promise<OutputRead>
  readStderr(request: ReadStreamRequest, signal: AbortSignal): Promise<OutputRead>
  closeStdin(request: CloseStdinRequest, signal: AbortSignal): Promise<void>
  ttyWinResize(request: TtyWinResizeRequest, signal: AbortSignal): Promise<void>
  /** Brings CPUs and memory online that were plugged in, and lets the containers have them. */
  onlineCpuMem(request: OnlineCPUMemRequest, signal: AbortSignal): Promise<void>
  /**
   * For an agent that took over from a dead one: kills and removes what that one left, and logs one line. Does
   * nothing otherwise. Never rejects; CreateSandbox waits for it.
   */
  cleanUpAfterCrash(): Promise<void>
}

/** Builds the calls around one sandbox, which does not exist yet. */
export function createSandboxHandlers(dependencies: SandboxDependencies): SandboxHandlers {
  const { os, config } = dependencies
  const runtime = ociRuntime(os, { ...config.runtime, root: config.runtimeRoot })
  const context: SandboxContext = {
    ...dependencies,
    runtime,
    sandboxState: new SandboxState(config.restarted),
    containers: new ContainerRegistry(),
    oom: new OomEvents(dependencies.log),
    sysctls: new GuestSysctls(os.files),
    cleanUpAfterCrash: onceIf(config.restarted, () => cleanUpAfterCrash({ ...dependencies, runtime })),
  }
  const onContainer = <Request, Answer>(call: ContainerCall<Request, Answer>) => {
    return async (request: Request, signal: AbortSignal): Promise<Answer> => {
      refuseWithoutContainers(context)
      return call(context, request, signal)
    }
  }
  return {
    createSandbox: (request, signal) => createSandbox(context, request, signal),
    destroySandbox: (_request, signal) => destroySandbox(context, signal),
    createContainer: onContainer(createContainer),
    startContainer: onContainer(startContainer),
    removeContainer: onContainer(removeContainer),
    updateContainer: onContainer(updateContainer),
    statsContainer: onContainer(statsContainer),
    getOomEvent: onContainer(getOomEvent),
    getDiagnosticData: onContainer(getDiagnosticData),
    removeStaleShareMounts: (request, signal) => removeStaleShareMounts(context, request, signal),
    onlineCpuMem: (request, signal) => onlineCpuMem(context, request, signal),
    pauseContainer: onContainer(pauseContainer),
    resumeContainer: onContainer(resumeContainer),
    execProcess: onContainer(execProcess),
    signalProcess: onContainer(signalProcess),
    waitProcess: onContainer(waitProcess),
    writeStdin: onContainer(writeStdin),
    readStdout: onContainer(readStdout),
    readStderr: onContainer(readStderr),
    closeStdin: onContainer(closeStdin),
    ttyWinResize: onContainer(ttyWinResize),
    cleanUpAfterCrash: context.cleanUpAfterCrash,
  }
}

type ContainerCall<Request, Answer> = (
  context: SandboxContext,
  request: Request,
  signal: AbortSignal,
) => Promise<Answer>

/** Without vminit there are no exits; after a crash there are no containers that this agent knows. */
function refuseWithoutContainers({ os, sandboxState }: SandboxContext): void {
  if (os.exits.unavailable !== undefined) throw new AgentError('FAILED_PRECONDITION', os.exits.unavailable)
  sandboxState.refuseLost()
}

function onceIf(isNeeded: boolean, work: () => Promise<void>): () => Promise<void> {
  let done: Promise<void> | undefined
  return async () => {
    if (isNeeded) done ??= work()
    await done
  }
}
