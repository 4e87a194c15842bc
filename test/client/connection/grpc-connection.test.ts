import { createServer } from 'node:http2'
import { connect, type Socket } from 'node:net'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { grpcConnection } from '../../../src/client/connection/grpc-connection.ts'
import { temporaryFolder } from '../../support/temporary-folder.ts'

/** A gRPC message of three bytes without its last byte. */
const UNFINISHED = Buffer.from([0, 0, 0, 0, 3, 1, 2])

describe('a gRPC connection', () => {
  let path: string
  let server: ReturnType<typeof createServer>
  const sockets: Socket[] = []
  beforeEach(async () => {
    path = join(temporaryFolder(), 'socket')
    server = createServer()
    server.on('connection', (socket) => sockets.push(socket)).on('sessionError', () => {})
    await new Promise<void>((resolve) => server.listen(path, resolve))
  })
  afterEach(() => {
    for (const socket of sockets.splice(0)) socket.destroy()
    server.close()
  })

  it('is lost when it closes in the middle of an answer', async () => {
    server.on('stream', (stream) => {
      stream.on('error', () => {}).respond({ 'content-type': 'application/grpc' }, { waitForTrailers: true })
      stream.write(UNFINISHED, () => {
        for (const socket of sockets) socket.destroy()
      })
    })
    const call = grpcConnection(connect(path)).call('service', 'Method', new Uint8Array())
    await expect(call).rejects.toMatchObject({
      code: 'UNAVAILABLE',
      message: expect.stringMatching(/^grpc: closed/),
    })
  })
})
