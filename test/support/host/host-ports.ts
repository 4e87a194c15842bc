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

/** A port of the host that takes one connection after the other. */
export interface ManyConnections {
  next(): Promise<Socket>
  close(): void
}

export async function listenForMany(path: string): Promise<ManyConnections> {
  const [arrived, waiting]: [Socket[], ((socket: Socket) => void)[]] = [[], []]
  const server = createServer({ allowHalfOpen: true, pauseOnConnect: true }, (socket) => {
    socket.on('error', () => {})
    const taker = waiting.shift()
    if (taker === undefined) arrived.push(socket)
    else taker(socket)
  })
  server.listen(path)
  await once(server, 'listening')
  return {
    next: async () => arrived.shift() ?? (await new Promise((resolve) => waiting.push(resolve))),
    close: () => void server.close(),
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
