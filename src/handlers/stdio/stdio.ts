import { AgentError } from '../../base/errors.ts'
import type { Os } from '../../os/os.ts'
import type { Fd } from '../../os/streams/streams.ts'
import { InputStream } from './input-stream.ts'
import { OutputStream } from './output-stream.ts'
import type { PortConnections } from './port-connections.ts'
import { PortInput, PortOutput } from './port-streams.ts'
import type { ProcessInput, ProcessOutput } from './process-streams.ts'

/** What the streams of a process need of the kernel. */
export type StreamOs = Pick<Os, 'clock' | 'streams'>

/** The agent's side of a process's standard streams. */
export interface Stdio {
  readonly stdin: ProcessInput
  readonly stdout: ProcessOutput
  /** The same stream as stdout on a terminal. */
  readonly stderr: ProcessOutput
  /**
   * Resolves when no connection is in use any more: all that the process wrote was delivered, or
   * the reader is gone.
   * Streams that are read by calls do not count.
   */
  readonly delivered: Promise<void>
  /** Sets the terminal's size. Throws UNAVAILABLE `no tty` without one. */
  resize(rows: number, columns: number): void
  /** To be called when the process has ended. */
  processEnded(): void
  /** Closes everything; pending reads and writes end. */
  close(): void
}

/**
 * The size of the pipe of a relayed output when none is configured: the most that a kernel allows by default. The relay then
 * moves larger pieces, which more than halves its time.
 */
const RELAYED_OUTPUT_BYTES = 1024 * 1024

/** The pipes of a process without a terminal. */
export interface Pipes {
  readonly stdio: Stdio
  /** The process's ends, for its descriptors 0, 1 and 2. */
  readonly childEnds: readonly [Fd, Fd, Fd]
  /** To be called once the process has its ends: until then the streams cannot end. */
  closeChildEnds(): void
}

/** Opens three pipes, relayed where a stream has a connection. When one fails, none stays open. */
export function openPipes(os: StreamOs, sizeBytes: number, connections: PortConnections): Pipes {
  const pipes: { stream: { close(): void }; childEnd: Fd }[] = []
  const open = <S extends { close(): void }>(
    { parentEnd, childEnd }: { readonly parentEnd: Fd; readonly childEnd: Fd },
    streamOf: (parentEnd: Fd) => S,
  ) => {
    const pipe = { stream: { close: () => os.streams.close(parentEnd) }, childEnd }
    pipes.push(pipe)
    const stream = streamOf(parentEnd)
    pipe.stream = stream
    return { stream, childEnd }
  }
  const closeChildEnds = () => {
    for (const { childEnd } of pipes) os.streams.close(childEnd)
  }
  const outputFor = (name: 'stdout' | 'stderr') => (fd: Fd) =>
    connections.take(name, (connection) => new PortOutput(os, fd, connection)) ??
    new OutputStream(os, fd, sizeBytes)
  try {
    const stdin = open(os.streams.pipe('child-reads', sizeBytes), (fd) => inputOf(os, fd, connections))
    const stdout = open(outputPipe(os, sizeBytes, connections.has('stdout')), outputFor('stdout'))
    const stderr = open(outputPipe(os, sizeBytes, connections.has('stderr')), outputFor('stderr'))
    return {
      stdio: stdioOf({
        stdin: stdin.stream,
        stdout: stdout.stream,
        stderr: stderr.stream,
        resize: () => {
          throw new AgentError('UNAVAILABLE', 'no tty')
        },
      }),
      childEnds: [stdin.childEnd, stdout.childEnd, stderr.childEnd],
      closeChildEnds,
    }
  } catch (error) {
    for (const { stream } of pipes) stream.close()
    closeChildEnds()
    throw error
  }
}

function outputPipe(os: StreamOs, sizeBytes: number, isRelayed: boolean): ReturnType<Os['streams']['pipe']> {
  if (sizeBytes > 0 || !isRelayed) return os.streams.pipe('child-writes', sizeBytes)
  try {
    return os.streams.pipe('child-writes', RELAYED_OUTPUT_BYTES)
  } catch {
    // This kernel is set to allow less, which is only slower.
    return os.streams.pipe('child-writes')
  }
}

/** The input stream over `fd`, which it owns unless this throws. */
export function inputOf(os: StreamOs, fd: Fd, connections: PortConnections): ProcessInput {
  return (
    connections.take('stdin', (connection) => new PortInput(os.streams, connection, fd)) ??
    new InputStream(os.streams, fd)
  )
}

/** Combines the streams of a process. */
export function stdioOf(parts: Pick<Stdio, 'stdin' | 'stdout' | 'stderr' | 'resize'>): Stdio {
  const { stdin, stdout, stderr } = parts
  const streams = [stdin, stdout, stderr]
  const relays = streams.flatMap((stream) =>
    stream instanceof PortInput || stream instanceof PortOutput ? [stream.ended] : [],
  )
  return {
    ...parts,
    delivered: Promise.all(relays).then(() => {}),
    processEnded: () => {
      for (const stream of streams) stream.processEnded()
    },
    close: () => {
      for (const stream of streams) stream.close()
    },
  }
}
