import { once } from 'node:events'
import { connect, createServer, type Socket } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { makeTemporaryFolder, removeTemporaryFolder } from '../../../src/build/temporary-folder.ts'

export interface SocketPair {
  readonly server: Socket
  readonly client: Socket
  close(): void
}

export async function socketPair(): Promise<SocketPair> {
  const directory = makeTemporaryFolder(tmpdir())
  const path = join(directory, 'socket')
  const listener = createServer()
  listener.listen(path)
  await once(listener, 'listening')
  const client = connect(path)
  const [[server]] = await Promise.all([once(listener, 'connection'), once(client, 'connect')])
  listener.close()
  removeTemporaryFolder(directory)
  return {
    server,
    client,
    close: () => {
      server.destroy()
      client.destroy()
    },
  }
}
