import { abortable } from '../../base/abort.ts'
import { AgentError, messageOf } from '../../base/errors.ts'
import type {
  CloseStdinRequest,
  ReadStreamRequest,
  TtyWinResizeRequest,
  WaitProcessRequest,
  WriteStreamRequest,
} from '../../gen/agent.ts'
import type { SandboxContext } from '../sandbox/context.ts'
import type { OutputRead } from '../stdio/process-streams.ts'
import type { ContainerProcess } from './process.ts'

/** How a process ended. */
export interface ProcessEnd {
  /** Exit code, or 128 plus the signal. */
  readonly status: number
  /** Forgets the process and closes its streams. To be called once the answer was written to a live connection. */
  forget(): void
}

/** What names a process in a request. */
interface ProcessKey {
  readonly containerId: string
  readonly execId: string
}

/** WaitProcess (behaviour spec, section C.6), also before the start. All waiters get the status. */
export async function waitProcess(
  context: SandboxContext,
  request: WaitProcessRequest,
  signal: AbortSignal,
): Promise<ProcessEnd> {
  const { parts } = await context.containers.waitFor(request.containerId, 'INVALID_ARGUMENT', signal)
  const process = await parts.processes.waitFor(request.execId, signal)
  const status = await abortable(process.reported, signal)
  return {
    status,
    forget: () => {
      parts.processes.forget(request.execId, process)
      process.stdio.close()
    },
  }
}

/** WriteStdin (behaviour spec, section C.13): no data is the end of input. Every failure is INTERNAL. */
export async function writeStdin(
  context: SandboxContext,
  request: WriteStreamRequest,
  signal: AbortSignal,
): Promise<number> {
  try {
    const { stdin } = (await processOf(context, request, signal)).stdio
    if (request.data.length === 0) await abortable(stdin.end(), signal)
    else await stdin.write(request.data, signal)
    return request.data.length
  } catch (error) {
    if (signal.aborted) throw error
    throw new AgentError('INTERNAL', messageOf(error), { cause: error })
  }
}

/** ReadStdout (behaviour spec, section C.14). */
export async function readStdout(
  context: SandboxContext,
  request: ReadStreamRequest,
  signal: AbortSignal,
): Promise<OutputRead> {
  const { stdio } = await processOf(context, request, signal)
  return stdio.stdout.read(request.len, signal)
}

/** ReadStderr (behaviour spec, section C.14). */
export async function readStderr(
  context: SandboxContext,
  request: ReadStreamRequest,
  signal: AbortSignal,
): Promise<OutputRead> {
  const { stdio } = await processOf(context, request, signal)
  return stdio.stderr.read(request.len, signal)
}

/** CloseStdin (behaviour spec, section C.15): after the writes before it. May be repeated. */
export async function closeStdin(
  context: SandboxContext,
  request: CloseStdinRequest,
  signal: AbortSignal,
): Promise<void> {
  const { stdio } = await processOf(context, request, signal)
  await abortable(stdio.stdin.end(), signal)
}

/** TtyWinResize (behaviour spec, section C.16). */
export async function ttyWinResize(
  context: SandboxContext,
  request: TtyWinResizeRequest,
  signal: AbortSignal,
): Promise<void> {
  const { stdio } = await processOf(context, request, signal)
  stdio.resize(request.row, request.column)
}

/** The process, once its creation is through. */
async function processOf(
  context: SandboxContext,
  key: ProcessKey,
  signal: AbortSignal,
): Promise<ContainerProcess> {
  const { parts } = await context.containers.waitFor(key.containerId, 'INVALID_ARGUMENT', signal)
  return parts.processes.waitFor(key.execId, signal)
}
