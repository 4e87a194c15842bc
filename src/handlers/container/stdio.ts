import { AgentError } from '../../base/errors.ts'
import type { Fd, Os } from '../../os/os.ts'
import { InputStream } from './input-stream.ts'
import { OutputStream } from './output-stream.ts'

/** The kernel keeps a terminal's size in 16-bit numbers. */
const MAX_SIZE = 0xffff

/** Our side of one process's standard streams. */
export interface Stdio {
  readonly stdin: InputStream
  readonly stdout: OutputStream
  /** The same stream as stdout on a terminal. */
  readonly stderr: OutputStream
  /** Sets the terminal's size. Throws UNAVAILABLE `no tty` without one. */
  resize(rows: number, columns: number): void
  /** To be called when the process has ended. */
  processEnded(): void
  /** Closes everything; pending reads and writes end. */
  close(): void
}

/** The child's side of its pipes, for descriptors 0, 1 and 2. */
export type ChildPipes = readonly [Fd, Fd, Fd]

/** Three pipes for a process without a terminal. `closeTheirs` must follow once the child has them. */
export function openPipes(
  os: Os,
  sizeBytes: number,
): { readonly stdio: Stdio; readonly theirs: ChildPipes; closeTheirs(): void } {
  const opened: { ours: Fd; theirs: Fd }[] = []
  const pipe = (direction: 'child-writes' | 'child-reads') => {
    const ends = os.streams.pipe(direction, sizeBytes > 0 ? sizeBytes : undefined)
    opened.push(ends)
    return ends
  }
  try {
    const [input, output, errors] = [pipe('child-reads'), pipe('child-writes'), pipe('child-writes')]
    const stdin = new InputStream(os.streams, input.ours)
    const stdout = new OutputStream(os, output.ours, sizeBytes)
    const stderr = new OutputStream(os, errors.ours, sizeBytes)
    return {
      stdio: stdioOf(stdin, stdout, stderr, () => {
        throw new AgentError('UNAVAILABLE', 'no tty')
      }),
      theirs: [input.theirs, output.theirs, errors.theirs],
      closeTheirs: () => {
        for (const { theirs } of opened) os.streams.close(theirs)
      },
    }
  } catch (error) {
    for (const { ours, theirs } of opened) {
      os.streams.close(ours)
      os.streams.close(theirs)
    }
    throw error
  }
}

/**
 * The streams of a process on a terminal, from the pty's master, which this takes over (and closes when it fails). Input has a descriptor of
 * its own, so that the end of input does not hang the terminal up.
 */
export function terminalStdio(os: Os, master: Fd): Stdio {
  const stdin = new InputStream(os.streams, inputOf(os, master))
  const output = new OutputStream(os, master, 0)
  return stdioOf(stdin, output, output, (rows, columns) => {
    if (rows > MAX_SIZE || columns > MAX_SIZE) {
      throw new AgentError('INVALID_ARGUMENT', `a terminal of ${rows} x ${columns} is too large`)
    }
    // Once it is closed the number may be another file's.
    if (!output.isClosed) os.streams.setWindowSize(master, rows, columns)
  })
}

function inputOf(os: Os, master: Fd): Fd {
  try {
    return os.streams.duplicate(master)
  } catch (error) {
    os.streams.close(master)
    throw error
  }
}

function stdioOf(
  stdin: InputStream,
  stdout: OutputStream,
  stderr: OutputStream,
  resize: Stdio['resize'],
): Stdio {
  const streams = [stdin, stdout, stderr]
  return {
    stdin,
    stdout,
    stderr,
    resize,
    processEnded: () => {
      for (const stream of streams) stream.processEnded()
    },
    close: () => {
      for (const stream of streams) stream.close()
    },
  }
}
