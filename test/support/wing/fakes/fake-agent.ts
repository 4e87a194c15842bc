import { once } from 'node:events'
import { createServer, type Server, type Socket } from 'node:net'
import { TRACEPARENT } from '../../../../src/rpc/traceparent.ts'
import { FrameReader } from '../../../../src/rpc/ttrpc/frame.ts'
import { decodeRequest, encodeResponseFrame } from '../../../../src/rpc/ttrpc/messages.ts'

/** Answers one call, which came with the metadata `traceparent`. */
export type Answer = (socket: Socket, streamId: number, traceparent: string | undefined) => void

/**
 * An agent behind a machine's vsock at `path`, which notes the methods that it is asked for. It answers some in its own way, and the
 * others with an empty message.
 */
export async function startAgent(
  path: string,
  calls: string[],
  own: Readonly<Record<string, Answer>> = {},
): Promise<Server> {
  const server = createServer((socket) => {
    const frames = new FrameReader({
      onFrame: ({ streamId }, payload) => {
        const { known, method } = decodeRequest(payload)
        if (method !== 'Check') calls.push(method)
        const answer = own[method]
        if (answer !== undefined) answer(socket, streamId, known?.get(TRACEPARENT))
        else socket.write(encodeResponseFrame(streamId, new Uint8Array(0)))
      },
      onOversizedFrame: () => socket.destroy(),
    })
    socket.on('error', () => {})
    socket.once('data', () => {
      socket.write('OK 1024\n')
      socket.on('data', (bytes) => frames.push(bytes))
    })
  })
  server.listen(path)
  await once(server, 'listening')
  return server
}
