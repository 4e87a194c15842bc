import { once } from 'node:events'
import { connect, type Socket } from 'node:net'
import { allocateFrame, FRAME_HEADER_BYTES, FrameType } from '../../../src/rpc/ttrpc/frame.ts'
import { Inbox, sent } from './inbox.ts'
import { cutter } from './records.ts'

export function frameOf(
  streamId: number,
  payload: string | Buffer,
  type: number = FrameType.request,
): Buffer {
  const bytes = Buffer.from(payload)
  const frame = allocateFrame({ payloadBytes: bytes.length, streamId, type, flags: 0 })
  bytes.copy(frame, FRAME_HEADER_BYTES)
  return frame
}

function frameSize(bytes: Buffer): number | undefined {
  return bytes.length < FRAME_HEADER_BYTES ? undefined : FRAME_HEADER_BYTES + bytes.readUInt32BE(0)
}

export class BrokerClient {
  readonly socket: Socket
  readonly frames = new Inbox<Buffer>('frames for the client')
  readonly closed: Promise<void>

  static async connect(target: string | number): Promise<BrokerClient> {
    const socket = typeof target === 'string' ? connect(target) : connect(target, '127.0.0.1')
    await once(socket, 'connect')
    return new BrokerClient(socket)
  }

  private constructor(socket: Socket) {
    this.socket = socket
    const closed = Promise.withResolvers<void>()
    this.closed = closed.promise
    socket.on('error', () => {})
    socket.on(
      'data',
      cutter(frameSize, (frame) => this.frames.push(frame)),
    )
    socket.on('close', () => {
      this.frames.end()
      closed.resolve()
    })
  }

  send(...frames: readonly Buffer[]): Promise<void> {
    return sent('bytes of the client', this.socket, Buffer.concat(frames))
  }
}
