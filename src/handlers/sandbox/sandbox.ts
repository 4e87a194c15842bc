import { AgentError } from '../../base/errors.ts'
import type {
  CloseStdinRequest,
  CreateContainerRequest,
  CreateSandboxRequest,
  DestroySandboxRequest,
  ExecProcessRequest,
  ReadStreamRequest,
  RemoveContainerRequest,
  SignalProcessRequest,
  StartContainerRequest,
  TtyWinResizeRequest,
  WaitProcessRequest,
  WriteStreamRequest,
} from '../../gen/agent.ts'
import type { SandboxDependencies } from './dependencies.ts'

/**
 * The calls of the sandbox, its containers and their processes (behaviour spec, sections C.1 to C.6, C.13 to
 * C.16, C.25, C.26). Each takes the request and the call's signal, and throws `AgentError`s with the codes of
 * section B.5. When the signal fires, waits and reads end, creations undo themselves; start, signal, remove and
 * destroy run to their end without the caller.
 */
export interface SandboxHandlers {
  createSandbox(request: CreateSandboxRequest, signal: AbortSignal): Promise<void>
  destroySandbox(request: DestroySandboxRequest, signal: AbortSignal): Promise<void>
  createContainer(request: CreateContainerRequest, signal: AbortSignal): Promise<void>
  startContainer(request: StartContainerRequest, signal: AbortSignal): Promise<void>
  removeContainer(request: RemoveContainerRequest, signal: AbortSignal): Promise<void>
  execProcess(request: ExecProcessRequest, signal: AbortSignal): Promise<void>
  signalProcess(request: SignalProcessRequest, signal: AbortSignal): Promise<void>
  waitProcess(request: WaitProcessRequest, signal: AbortSignal): Promise<ProcessEnd>
  /** Answers how many bytes were taken: all of them. */
  writeStdin(request: WriteStreamRequest, signal: AbortSignal): Promise<number>
  /** Empty data is the end of the stream. */
  readStdout(request: ReadStreamRequest, signal: AbortSignal): Promise<Uint8Array>
  /** Empty data is the end of the stream. */
  readStderr(request: ReadStreamRequest, signal: AbortSignal): Promise<Uint8Array>
  closeStdin(request: CloseStdinRequest, signal: AbortSignal): Promise<void>
  ttyWinResize(request: TtyWinResizeRequest, signal: AbortSignal): Promise<void>
  /**
   * For an agent that took over from a dead one: kills and removes what that one left, and logs one line. Does
   * nothing otherwise. Never rejects; CreateSandbox waits for it.
   */
  clearPredecessor(): Promise<void>
}

/** How a process ended. */
export interface ProcessEnd {
  /** Exit code, or 128 plus the signal. */
  readonly status: number
  /** Forgets the process and closes its streams. To be called once the answer was written to a live connection. */
  forget(): void
}

/** Builds the calls around one sandbox, which does not exist yet. */
export function createSandboxHandlers(_dependencies: SandboxDependencies): SandboxHandlers {
  const later = async (): Promise<never> => {
    throw new AgentError('UNIMPLEMENTED', 'the sandbox is not there yet')
  }
  return {
    createSandbox: later,
    destroySandbox: later,
    createContainer: later,
    startContainer: later,
    removeContainer: later,
    execProcess: later,
    signalProcess: later,
    waitProcess: later,
    writeStdin: later,
    readStdout: later,
    readStderr: later,
    closeStdin: later,
    ttyWinResize: later,
    clearPredecessor: async () => {},
  }
}
