import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { rmSync } from 'node:fs'
import { Socket } from 'node:net'
import { join } from 'node:path'
import { checkErrno } from '../../../src/os/errors.ts'
import { linuxStreams } from '../../../src/os/streams/linux-streams.ts'
import { realNative } from '../os/real-native.ts'

/** Node binds no socket that it connects. */
const PROGRAM = `
import socket, sys
connection, to = socket.socket(socket.AF_UNIX), socket.socket(socket.AF_UNIX)
connection.bind(sys.argv[1])
connection.connect(sys.argv[2])
to.connect(sys.argv[3])
socket.send_fds(to, [b'x'], [connection.fileno()])
`

/** Connects to the agent's stream listener in `folder` (agent.stdio_dial) as the host's port `port` does. */
export async function dialFrom(folder: string, port: number, listener: number): Promise<Socket> {
  const native = await realNative()
  const streams = linuxStreams(native)
  const [from, handing] = [join(folder, `port_${port}`), join(folder, `handing_${port}`)]
  rmSync(from, { force: true })
  const listening = checkErrno('listen', handing, native.unixListen(handing, 1))
  try {
    const paths = [from, join(folder, `listener_${listener}`), handing]
    const client = spawn('python3', ['-c', PROGRAM, ...paths], { stdio: ['ignore', 'ignore', 'inherit'] })
    await streams.readable(listening)
    const connection = checkErrno('accept', handing, native.accept(listening))
    await streams.readable(connection)
    const fd = checkErrno('receive', handing, native.receiveFd(connection))
    streams.close(connection)
    await once(client, 'exit')
    const socket = new Socket({ fd, allowHalfOpen: true })
    socket.on('error', () => {})
    return socket
  } finally {
    streams.close(listening)
    rmSync(handing, { force: true })
  }
}
