import { AgentError } from '../../base/errors.ts'
import type { Fd } from '../../os/streams/streams.ts'
import { OutputStream } from './output-stream.ts'
import type { PortConnections } from './port-connections.ts'
import { PortOutput, type PortStream } from './port-streams.ts'
import type { ProcessInput, StreamOs } from './process-streams.ts'
import { inputOf, type Stdio, stdioOf, throughPipe } from './stdio.ts'
import type { StoredDescriptors } from './stored-descriptors.ts'

/** The kernel stores a terminal's size in 16-bit numbers. */
const MAX_SIZE = 0xffff

interface Terminal {
  readonly os: StreamOs
  readonly master: Fd
  readonly stdin: ProcessInput
  readonly stored: StoredDescriptors
}

/**
 * Owns the pty's master, which is stored already, even when it throws. Input uses a duplicate, so that its end does not
 * hang up the terminal. A terminal has no stderr, so a connection for stderr is closed at once.
 */
export function terminalStdio(
  os: StreamOs,
  master: Fd,
  connections: PortConnections,
  stored: StoredDescriptors,
): Stdio {
  let stdin: ProcessInput | undefined
  try {
    stdin = onDuplicate(os, master, (fd) => {
      stored.put('stdin', fd)
      return inputOf(os, fd, { connections, stored, isTerminal: true })
    })
    const terminal = { os, master, stdin, stored }
    const output = connections.take('stdout', (connection, port) =>
      throughPipe(os, stored, 'stdout-pipe', (through) =>
        relayedOutput(terminal, { connection, port, through }),
      ),
    )
    void connections.close()
    return output === undefined ? terminalByCalls(terminal) : terminalByPort(terminal, output)
  } catch (error) {
    void stdin?.close()
    os.streams.close(master)
    throw error
  }
}

export function terminalByCalls({ os, master, stdin, stored }: Terminal): Stdio {
  const output = new OutputStream(os, {
    fd: master,
    capacityBytes: 0,
    name: 'stdout',
    isTerminal: true,
    stored,
  })
  const resize = resizer(os, master, () => !output.isClosed)
  return stdioOf({ stdin, stdout: output, stderr: output, resize }, stored)
}

/** Owns the connection and the pipe unless it throws. */
export function relayedOutput(
  { os, master, stored }: Terminal,
  relayed: Pick<PortStream, 'connection' | 'dialled' | 'port' | 'through'>,
): PortOutput {
  return onDuplicate(os, master, (fd) => new PortOutput(os, 'stdout', { ...relayed, fd, stored }))
}

/** The master stays open to set the size. The end of the output ends the terminal. */
export function terminalByPort({ os, master, stdin, stored }: Terminal, output: PortOutput): Stdio {
  let isOpen = true
  const closed = output.ended.then(async () => {
    isOpen = false
    os.streams.close(master)
    await Promise.all([stdin.close(), stored.remove('master')])
  })
  const resize = resizer(os, master, () => isOpen)
  return stdioOf({ stdin, stdout: output, stderr: output, resize }, stored, closed)
}

/** Once the master is closed, its number may be another file's. */
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

/** `use` owns the duplicate unless it throws. */
function onDuplicate<T>(os: StreamOs, fd: Fd, use: (duplicate: Fd) => T): T {
  const duplicate = os.streams.duplicate(fd)
  try {
    return use(duplicate)
  } catch (error) {
    os.streams.close(duplicate)
    throw error
  }
}
