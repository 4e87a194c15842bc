import { once } from 'node:events'
import { Server, ServerCredentials, type ServerWritableStream } from '@grpc/grpc-js'

/** Answers a call of bare/Stream at the socket of argument 1 with as many bytes as argument 2. Prints when it is ready. */
const [, , path = '', bytes = ''] = process.argv
const MESSAGE = Buffer.alloc(32 * 1024, 'x')

const same = (message: Buffer) => message
const server = new Server()
server.register(
  '/bare/Stream',
  async (call: ServerWritableStream<Buffer, Buffer>) => {
    for (let left = Number(bytes); left > 0; left -= MESSAGE.length)
      if (!call.write(MESSAGE.subarray(0, left))) await once(call, 'drain')
    call.end()
  },
  same,
  same,
  'serverStream',
)
server.bindAsync(`unix:${path}`, ServerCredentials.createInsecure(), () => process.stdout.write('up\n'))
