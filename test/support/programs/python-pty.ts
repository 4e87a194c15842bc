import { type ChildProcess, spawn } from 'node:child_process'

/**
 * Acts as an OCI runtime at a console socket: makes a pty and sends its master with a name. Commands from the pty: `size`
 * prints rows and columns, `end` ends the program, anything else is echoed.
 */
const RUNTIME = `
import array, os, pty, socket, sys, tty
master, slave = pty.openpty()
tty.setraw(slave)
connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
connection.connect(sys.argv[1])
socket.send_fds(connection, [b'/dev/ptmx'], [master])
connection.close()
os.close(master)
for line in os.fdopen(slave, 'r'):
    if line == 'end\\n':
        break
    text = '%d %d' % tuple(reversed(os.get_terminal_size(slave))) if line == 'size\\n' else line.strip()
    os.write(slave, (text + '\\n').encode())
`

export function startRuntimeWithPty(consoleSocket: string): ChildProcess {
  return spawn('python3', ['-c', RUNTIME, consoleSocket], { stdio: ['ignore', 'inherit', 'inherit'] })
}
