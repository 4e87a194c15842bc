import { abortable } from '../../base/abort.ts'
import { AgentError, messageOf } from '../../base/errors.ts'
import type {
  CloseStdinRequest,
  ReadStreamRequest,
  TtyWinResizeRequest,
  WriteStreamRequest,
} from '../../gen/agent.ts'
import type { OutputRead } from '../stdio/process-streams.ts'
import type { Stdio } from '../stdio/stdio.ts'
import type { ProcessOwners } from './owner.ts'

/** What the calls on a process's streams need. */
export interface StdioCallDependencies {
  readonly containers: Pick<ProcessOwners, 'waitFor'>
}

/**
 * WriteStdin (behaviour spec, section C.13): no data is the end of input. Resolves with the number of bytes taken, which
 * is all of them. Every failure is INTERNAL.
 */
export async function writeStdin(
  dependencies: StdioCallDependencies,
  request: WriteStreamRequest,
  signal: AbortSignal,
): Promise<number> {
  try {
    const { stdin } = await stdioOf(dependencies, request, signal)
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
  dependencies: StdioCallDependencies,
  request: ReadStreamRequest,
  signal: AbortSignal,
): Promise<OutputRead> {
  const { stdout } = await stdioOf(dependencies, request, signal)
  return stdout.read(request.len, signal)
}

/** ReadStderr (behaviour spec, section C.14). */
export async function readStderr(
  dependencies: StdioCallDependencies,
  request: ReadStreamRequest,
  signal: AbortSignal,
): Promise<OutputRead> {
  const { stderr } = await stdioOf(dependencies, request, signal)
  return stderr.read(request.len, signal)
}

/** CloseStdin (behaviour spec, section C.15): after the writes before it. May be repeated. */
export async function closeStdin(
  dependencies: StdioCallDependencies,
  request: CloseStdinRequest,
  signal: AbortSignal,
): Promise<void> {
  const { stdin } = await stdioOf(dependencies, request, signal)
  await abortable(stdin.end(), signal)
}

/** TtyWinResize (behaviour spec, section C.16). */
export async function ttyWinResize(
  dependencies: StdioCallDependencies,
  request: TtyWinResizeRequest,
  signal: AbortSignal,
): Promise<void> {
  const stdio = await stdioOf(dependencies, request, signal)
  stdio.resize(request.row, request.column)
}

/** The streams of a process, once its creation is over. */
async function stdioOf(
  { containers }: StdioCallDependencies,
  { containerId, execId }: { readonly containerId: string; readonly execId: string },
  signal: AbortSignal,
): Promise<Stdio> {
  const { parts } = await containers.waitFor(containerId, 'INVALID_ARGUMENT', signal)
  return (await parts.processes.waitFor(execId, signal)).stdio
}
