import { AgentError } from '../../base/errors.ts'
import type { Fd } from '../../os/streams/streams.ts'
import { OutputStream } from './output-stream.ts'
import type { PortConnections } from './port-connections.ts'
import { PortOutput } from './port-streams.ts'
import type { ProcessInput } from './process-streams.ts'
import { inputOf, type Stdio, type StreamOs, stdioOf } from './stdio.ts'

/** The kernel stores a terminal's size in 16-bit numbers. */
const MAX_SIZE = 0xffff

/**
 * The streams of a process on a terminal. Takes over the pty's master, also when it throws. Input has a descriptor of its
 * own, so that the end of input does not hang up the terminal. A terminal has no stderr: a connection for it is closed at
 * once.
 */
export function terminalStdio(os: StreamOs, master: Fd, connections: PortConnections): Stdio {
  let stdin: ProcessInput | undefined
  try {
    stdin = onDuplicate(os, master, (fd) => inputOf(os, fd, connections))
    const stdio = connections.has('stdout')
      ? relayed(os, master, connections, stdin)
      : readByCalls(os, master, stdin)
    connections.close()
    return stdio
  } catch (error) {
    stdin?.close()
    os.streams.close(master)
    throw error
  }
}

function readByCalls(os: StreamOs, master: Fd, stdin: ProcessInput): Stdio {
  const output = new OutputStream(os, master, 0)
  const resize = resizer(os, master, () => !output.isClosed)
  return stdioOf({ stdin, stdout: output, stderr: output, resize })
}

/** The master itself is kept for the terminal's size. The end of the output is the end of the terminal. */
function relayed(os: StreamOs, master: Fd, connections: PortConnections, stdin: ProcessInput): Stdio {
  const output = onDuplicate(os, master, (fd) =>
    connections.take('stdout', (connection) => new PortOutput(os, fd, connection)),
  )
  if (output === undefined) throw new Error('the output has no connection')
  let isOpen = true
  void output.ended.then(() => {
    isOpen = false
    stdin.close()
    os.streams.close(master)
  })
  return stdioOf({ stdin, stdout: output, stderr: output, resize: resizer(os, master, () => isOpen) })
}

/** Sets the size only while the master is open: once it is closed, its number may be another file's. */
function resizer(os: StreamOs, master: Fd, isOpen: () => boolean): Stdio['resize'] {
  return (rows, columns) => {
    if (rows > MAX_SIZE || columns > MAX_SIZE) {
      throw new AgentError(
        'INVALID_ARGUMENT',
        `terminal size ${rows} x ${columns}: too large, want at most ${MAX_SIZE} each`,
      )
    }
    if (isOpen()) os.streams.setWindowSize(master, rows, columns)
  }
}

/** Passes `use` a duplicate, which it owns unless it throws. */
function onDuplicate<T>(os: StreamOs, fd: Fd, use: (duplicate: Fd) => T): T {
  const duplicate = os.streams.duplicate(fd)
  try {
    return use(duplicate)
  } catch (error) {
    os.streams.close(duplicate)
    throw error
  }
}
