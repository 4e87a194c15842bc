import { once } from 'node:events'
import { createServer, type Socket } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { buffer } from 'node:stream/consumers'
import { makeTemporaryFolder, removeTemporaryFolder } from '../../../src/build/temporary-folder.ts'

export interface HostPorts {
  readonly folder: string
  readonly settings: Readonly<Record<string, string>>
  /** Makes the host listen at `port` for the next connection only. */
  listen(port: number): Promise<OneConnection>
  remove(): void
}

export interface OneConnection {
  readonly connection: Promise<Socket>
  all(): Promise<Buffer>
}

/** `settings` are more settings of the agent, by their names in a configuration file; values are TOML. */
export function makeHostPorts(settings: HostPorts['settings'] = {}): HostPorts {
  const folder = makeTemporaryFolder(tmpdir())
  return {
    folder,
    settings: { stdio_dial: `"unix:${folder}"`, ...settings },
    listen: (port) => listenForOne(join(folder, `port_${port}`)),
    remove: () => removeTemporaryFolder(folder),
  }
}

export async function listenForOne(path: string): Promise<OneConnection> {
  const server = createServer({ allowHalfOpen: true, pauseOnConnect: true })
  const { promise, resolve } = Promise.withResolvers<Socket>()
  server.once('connection', (socket) => {
    server.close()
    // Writing to a closed connection fails; tests check only what they read.
    socket.on('error', () => {})
    resolve(socket)
  })
  server.listen(path)
  await once(server, 'listening')
  return { connection: promise, all: async () => buffer(await promise) }
}
