import { rmSync } from 'node:fs'
import type { VhostUserBackend } from '../spec/spec.ts'
import { startSocketServer } from './child.ts'

const PROGRAM = '/usr/lib/qemu/virtiofsd'

/** A folder of this host that one guest at a time can mount. The caller of {@link shareFolder} calls `close`. */
export interface SharedFolder {
  readonly backend: VhostUserBackend
  close(): Promise<void>
}

/**
 * Starts virtiofsd, which serves `folder` at `socket`. It ends with the guest that used it; this starts it again for the
 * next guest. Needs root, because the guest's owners and modes are those of the files. Rejects with UNAVAILABLE when
 * virtiofsd does not start.
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
    // `close` was called while virtiofsd started.
    if (isClosed) await daemon.kill()
    else await startAgain()
  }
  // When it does not start again, QEMU reports that it cannot connect to the socket.
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
