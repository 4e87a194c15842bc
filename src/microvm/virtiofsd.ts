import { rmSync } from 'node:fs'
import { startSocketServer } from './socket-of-child.ts'
import type { VhostUserBackend } from './spec.ts'

/** Where Debian's qemu-system-common has it. */
const PROGRAM = '/usr/lib/qemu/virtiofsd'

/** A folder of this host that one guest at a time can mount. Whoever shared it calls `close`. */
export interface SharedFolder {
  readonly backend: VhostUserBackend
  /** Ends the daemon, if it still runs. */
  close(): Promise<void>
}

/**
 * Has virtiofsd serve `folder` at `socket`. It ends with the guest that used it, and is started again for the next one.
 * Needs root, for the guest's owners and modes are those of the files. Rejects with UNAVAILABLE when it does not start.
 */
export async function shareFolder(folder: string, socket: string, program = PROGRAM): Promise<SharedFolder> {
  const options = ['-o', `source=${folder}`, '-o', 'xattr', '-o', 'cache=auto']
  const start = () => {
    rmSync(socket, { force: true })
    return startSocketServer('virtiofsd', [program, `--socket-path=${socket}`, ...options], socket)
  }
  let isClosed = false
  let daemon = await start()
  const startAgain = async (): Promise<void> => {
    await daemon.exited
    if (isClosed) return
    daemon = await start()
    // Closed while it was being started.
    if (isClosed) await daemon.kill()
    else await startAgain()
  }
  // When it does not start again, QEMU says that nobody serves the socket.
  const ended = startAgain().catch(() => {})
  return {
    backend: { kind: 'vhost-user', socket },
    close: async () => {
      isClosed = true
      await daemon.kill()
      await ended
    },
  }
}
