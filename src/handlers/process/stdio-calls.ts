import { abortable } from '../../base/abort.ts'
import { AgentError, messageOf } from '../../base/errors.ts'
import { inStep } from '../../base/step.ts'
import type {
  CloseStdinRequest,
  ReadStreamRequest,
  TtyWinResizeRequest,
  WriteStreamRequest,
} from '../../gen/agent.ts'
import type { InputWrite, OutputRead } from '../stdio/process-streams.ts'
import type { Stdio } from '../stdio/stdio.ts'
import type { ProcessOwners } from './owner.ts'

/** A call on a stream: when it ends, and its request's number, by which a request that is sent again is known. */
export interface StreamCall {
  readonly signal: AbortSignal
  readonly number?: bigint | undefined
}

/** What WriteStdin has written. */
export interface Written extends InputWrite {
  readonly bytes: number
}

/** How many bytes of each stream calls have carried, for the metrics. */
export type CarriedBytes = Record<'stdin' | 'stdout' | 'stderr', number>

/** What the calls on a process's streams need. */
export interface StdioCallDependencies {
  readonly carried: CarriedBytes
  readonly containers: Pick<ProcessOwners, 'waitFor'>
}

/**
 * WriteStdin (behaviour spec, section C.13): no data is the end of input. Resolves when all bytes are taken. Every
 * failure is INTERNAL.
 */
export async function writeStdin(
  dependencies: StdioCallDependencies,
  request: WriteStreamRequest,
  { signal, number }: StreamCall,
): Promise<Written> {
  try {
    const { stdin } = await stdioOf(dependencies, request, signal)
    const bytes = request.data.length
    if (bytes > 0) {
      const written = await inStep('input', '', () => stdin.write(request.data, signal, number))
      dependencies.carried.stdin += bytes
      return { bytes, ...written }
    }
    await abortable(stdin.end(), signal)
    return { bytes, settle: () => {} }
  } catch (error) {
    if (signal.aborted) throw error
    throw new AgentError('INTERNAL', messageOf(error), { cause: error })
  }
}

/** ReadStdout (behaviour spec, section C.14). */
export async function readStdout(
  dependencies: StdioCallDependencies,
  request: ReadStreamRequest,
  { signal, number }: StreamCall,
): Promise<OutputRead> {
  const { stdout } = await stdioOf(dependencies, request, signal)
  const output = await inStep('output', '', () => stdout.read(request.len, signal, number))
  dependencies.carried.stdout += output.length
  return output
}

/** ReadStderr (behaviour spec, section C.14). */
export async function readStderr(
  dependencies: StdioCallDependencies,
  request: ReadStreamRequest,
  { signal, number }: StreamCall,
): Promise<OutputRead> {
  const { stderr } = await stdioOf(dependencies, request, signal)
  const output = await inStep('output', '', () => stderr.read(request.len, signal, number))
  dependencies.carried.stderr += output.length
  return output
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
  { containers }: Pick<StdioCallDependencies, 'containers'>,
  { containerId, execId }: { readonly containerId: string; readonly execId: string },
  signal: AbortSignal,
): Promise<Stdio> {
  const { parts } = await containers.waitFor(containerId, 'INVALID_ARGUMENT', signal)
  return (await parts.processes.waitFor(execId, signal)).stdio
}
