import { AgentError } from '../../base/errors.ts'
import type { Os } from '../../os/os.ts'
import type { Fd } from '../../os/streams/streams.ts'
import type { TakenByRequests } from '../../state/request.ts'
import { InputStream } from './input-stream.ts'
import { OutputStream } from './output-stream.ts'
import type { PortConnections } from './port-connections.ts'
import { PortInput, PortOutput } from './port-streams.ts'
import type { ProcessInput, ProcessOutput, StreamOs } from './process-streams.ts'
import type { StoredDescriptors } from './stored-descriptors.ts'

/** The agent's side of a process's standard streams. */
export interface Stdio extends TakenByRequests {
  readonly stdin: ProcessInput
  readonly stdout: ProcessOutput
  /** The same stream as stdout on a terminal. */
  readonly stderr: ProcessOutput
  /** Resolves when all output on connections is delivered or their readers are gone. Ignores streams read by calls. */
  readonly delivered: Promise<void>
  /** Throws UNAVAILABLE `no tty` without a terminal. */
  resize(rows: number, columns: number): void
  processEnded(): void
  /** Ends pending reads and writes. Resolves when all descriptors are closed, in vminit too. */
  close(): Promise<void>
  /** Begins to close. Nobody waits for the end. */
  forget(): void
}

/** The most that a kernel allows by default. With larger pieces, the relay needs less than half the time. */
const RELAYED_OUTPUT_BYTES = 1024 * 1024

export interface Pipes {
  readonly stdio: Stdio
  /** The process's ends, for its descriptors 0, 1 and 2. */
  readonly childEnds: readonly [Fd, Fd, Fd]
  /** Call it once the process has its ends; until then the streams cannot end. */
  closeChildEnds(): void
}

/** Opens and stores three pipes; streams with a connection are relayed. When one fails, none stays open. */
export function openPipes(
  os: StreamOs,
  sizeBytes: number,
  connections: PortConnections,
  stored: StoredDescriptors,
): Pipes {
  const pipes: { owner: { close(): unknown }; readonly childEnd: Fd }[] = []
  const open = ({ parentEnd, childEnd }: ReturnType<Os['streams']['pipe']>) => {
    const pipe = { owner: { close: (): unknown => os.streams.close(parentEnd) }, parentEnd, childEnd }
    pipes.push(pipe)
    return pipe
  }
  const owned = <S extends { close(): unknown }>(pipe: { owner: { close(): unknown } }, stream: S): S => {
    pipe.owner = stream
    return stream
  }
  const closeChildEnds = () => {
    for (const { childEnd } of pipes) os.streams.close(childEnd)
  }
  const outputOf = (name: 'stdout' | 'stderr', fd: Fd) => {
    const relayed = connections.take(
      name,
      (connection, port) => new PortOutput(os, name, { connection, port, fd, through: undefined, stored }),
    )
    return relayed ?? new OutputStream(os, { fd, capacityBytes: sizeBytes, name, isTerminal: false, stored })
  }
  try {
    const stdin = open(inputPipe(os, sizeBytes))
    const stdout = open(outputPipe(os, sizeBytes, connections.has('stdout')))
    const stderr = open(outputPipe(os, sizeBytes, connections.has('stderr')))
    stored.putStreams({ stdin: stdin.parentEnd, stdout: stdout.parentEnd, stderr: stderr.parentEnd })
    const streams = {
      stdin: owned(stdin, inputOf(os, stdin.parentEnd, { connections, stored, isTerminal: false })),
      stdout: owned(stdout, outputOf('stdout', stdout.parentEnd)),
      stderr: owned(stderr, outputOf('stderr', stderr.parentEnd)),
      resize: withoutTerminal,
    }
    return {
      stdio: stdioOf(streams, stored),
      childEnds: [stdin.childEnd, stdout.childEnd, stderr.childEnd],
      closeChildEnds,
    }
  } catch (error) {
    for (const { owner } of pipes) owner.close()
    closeChildEnds()
    throw error
  }
}

export function withoutTerminal(): never {
  throw new AgentError('UNAVAILABLE', 'no tty')
}

/** Each write takes its own pages. This size has 32 (default 16), so 32 short writes never wait for the process. */
const INPUT_BYTES = 128 * 1024

function inputPipe(os: StreamOs, sizeBytes: number): ReturnType<Os['streams']['pipe']> {
  return pipeOf(os, 'child-reads', sizeBytes, INPUT_BYTES)
}

function outputPipe(os: StreamOs, sizeBytes: number, isRelayed: boolean): ReturnType<Os['streams']['pipe']> {
  return pipeOf(os, 'child-writes', sizeBytes, isRelayed ? RELAYED_OUTPUT_BYTES : 0)
}

/** A pipe of the configured size, or else of `wantedBytes`, if the kernel allows as much. */
function pipeOf(
  os: StreamOs,
  direction: 'child-reads' | 'child-writes',
  sizeBytes: number,
  wantedBytes: number,
): ReturnType<Os['streams']['pipe']> {
  if (sizeBytes > 0 || wantedBytes === 0) return os.streams.pipe(direction, sizeBytes)
  try {
    return os.streams.pipe(direction, wantedBytes)
  } catch {
    // This kernel allows less; the default size is only slower.
    return os.streams.pipe(direction)
  }
}

/** Owns `fd`, which is stored already, unless this throws. */
export function inputOf(
  os: StreamOs,
  fd: Fd,
  input: {
    readonly connections: PortConnections
    readonly stored: StoredDescriptors
    readonly isTerminal: boolean
  },
): ProcessInput {
  const { connections, stored, isTerminal } = input
  const { isShared } = connections
  const relayed = connections.take('stdin', (connection, port) =>
    throughPipe(os, stored, 'stdin-pipe', (through) => {
      return new PortInput(os, { connection, port, fd, through, stored }, { isShared, hasEnded: false })
    }),
  )
  return relayed ?? new InputStream(os.streams, { fd, isTerminal, stored })
}

/** `use` owns the stored pipe unless it throws. */
export function throughPipe<T>(
  os: StreamOs,
  stored: StoredDescriptors,
  name: 'stdin-pipe' | 'stdout-pipe',
  use: (pipe: Fd) => T,
): T {
  const pipe = os.streams.wholePipe()
  try {
    stored.put(name, pipe)
    return use(pipe)
  } catch (error) {
    os.streams.close(pipe)
    throw error
  }
}

/** `closed` resolves when everything else that belongs to the streams is closed. */
export function stdioOf(
  parts: Pick<Stdio, 'stdin' | 'stdout' | 'stderr' | 'resize'>,
  stored: Pick<StoredDescriptors, 'forget'>,
  closed: Promise<void> = Promise.resolve(),
): Stdio {
  const { stdin, stdout, stderr } = parts
  const streams = [...new Set([stdin, stdout, stderr])]
  const relays = streams.flatMap((stream) =>
    stream instanceof PortInput || stream instanceof PortOutput ? [stream.ended] : [],
  )
  const close = async () => {
    await Promise.all([...streams.map((stream) => stream.close()), closed])
  }
  return {
    ...parts,
    delivered: Promise.all(relays).then(() => {}),
    taken: streams.flatMap(({ taken }) => taken),
    processEnded: () => {
      for (const stream of streams) stream.processEnded()
    },
    close,
    forget: () => {
      stored.forget()
      void close()
    },
  }
}
