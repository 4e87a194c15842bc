import { createServer } from 'node:net'
import { FrameReader } from '../../../src/rpc/ttrpc/frame.ts'
import { decodeRequest, encodeResponseFrame } from '../../../src/rpc/ttrpc/messages.ts'

/**
 * A bare ttRPC server on the unix socket of argument 1. A call's method is the number of bytes in its answer, one of
 * the sizes in the further arguments.
 */
const answers = new Map(['0', ...process.argv.slice(3)].map((size) => [size, Buffer.alloc(Number(size))]))

const server = createServer((socket) => {
  const reader = new FrameReader({
    onFrame: ({ streamId }, request) => {
      const answer = answers.get(decodeRequest(request).method)
      socket.write(encodeResponseFrame(streamId, answer ?? Buffer.alloc(0)))
    },
    onOversizedFrame: () => socket.destroy(),
  })
  socket.on('data', (chunk: Buffer) => reader.push(chunk))
})
server.listen(process.argv[2], () => process.stdout.write('up\n'))
