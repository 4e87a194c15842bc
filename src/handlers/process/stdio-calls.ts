import { abortable } from '../../base/abort.ts'
import { AgentError, messageOf } from '../../base/errors.ts'
import { inStep } from '../../base/step.ts'
import type {
  CloseStdinRequest,
  ReadStreamRequest,
  TtyWinResizeRequest,
  WriteStreamRequest,
  WriteStreamResponse,
} from '../../gen/agent.ts'
import type { Call, Waiting } from '../../state/request.ts'
import { NO_OUTPUT, type OutputRead } from '../stdio/process-streams.ts'
import type { Stdio } from '../stdio/stdio.ts'
import type { ProcessOwners } from './owner.ts'

/** Bytes that calls have carried, for the metrics. */
export type CarriedBytes = Record<'stdin' | 'stdout' | 'stderr', number>

export interface StdioCallContext {
  readonly carried: CarriedBytes
  readonly containers: Pick<ProcessOwners, 'waitFor'>
}

/** WriteStdin: no data ends the input. Resolves when all bytes are taken. Every failure is INTERNAL. */
export async function writeStdin(
  dependencies: StdioCallContext,
  request: WriteStreamRequest,
  call: Call,
): Promise<WriteStreamResponse> {
  const { signal } = call
  try {
    const { stdin } = await stdioOf(dependencies, request, call)
    const data = call.data ?? request.data
    const bytes = data.length
    if (bytes > 0) {
      call.takes(await inStep('input', '', () => stdin.write(data, call)))
      dependencies.carried.stdin += bytes
    } else await abortable(stdin.end(), signal)
    return { len: bytes }
  } catch (error) {
    if (signal.aborted) throw error
    throw new AgentError('INTERNAL', messageOf(error), { cause: error })
  }
}

export const readStdout = reader('stdout')

export const readStderr = reader('stderr')

function reader(name: 'stdout' | 'stderr') {
  return async (
    dependencies: StdioCallContext,
    request: ReadStreamRequest,
    call: Call,
  ): Promise<OutputRead> => {
    checkName(call)
    const stdio = await openStdio(dependencies, request, call)
    if (stdio === undefined) return NO_OUTPUT
    const output = await inStep('output', '', () => stdio[name].read(request.len, call))
    call.takes(output)
    dependencies.carried[name] += output.length
    return output
  }
}

const MOST_NAME_BYTES = 128

function checkName({ outputRead }: Call): void {
  if (outputRead === undefined) return
  const bytes = Buffer.byteLength(outputRead)
  if (bytes < 1 || bytes > MOST_NAME_BYTES)
    throw new AgentError('INVALID_ARGUMENT', `output-read: ${bytes} bytes, want 1 to ${MOST_NAME_BYTES}`)
}

/** CloseStdin takes effect after earlier writes, and may be repeated. */
export async function closeStdin(
  dependencies: StdioCallContext,
  request: CloseStdinRequest,
  call: Call,
): Promise<void> {
  const { stdin } = await stdioOf(dependencies, request, call)
  await abortable(stdin.end(), call.signal)
}

export async function ttyWinResize(
  dependencies: StdioCallContext,
  request: TtyWinResizeRequest,
  call: Call,
): Promise<void> {
  const stdio = await stdioOf(dependencies, request, call)
  stdio.resize(request.row, request.column)
}

/** Like {@link stdioOf}; undefined when a read that is sent again finds no process, whose end has closed the streams. */
async function openStdio(
  dependencies: StdioCallContext,
  request: ReadStreamRequest,
  call: Call,
): Promise<Stdio | undefined> {
  try {
    return await stdioOf(dependencies, request, call)
  } catch (error) {
    if (call.sentBefore === true && isGone(error)) return undefined
    throw error
  }
}

function isGone(error: unknown): boolean {
  return error instanceof AgentError && (error.code === 'NOT_FOUND' || error.code === 'INVALID_ARGUMENT')
}

async function stdioOf(
  { containers }: Pick<StdioCallContext, 'containers'>,
  { containerId, execId }: { readonly containerId: string; readonly execId: string },
  call: Waiting,
): Promise<Stdio> {
  const { parts } = await containers.waitFor(containerId, 'INVALID_ARGUMENT', call)
  return (await parts.processes.waitFor(execId, call)).stdio
}
