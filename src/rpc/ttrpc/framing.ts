import type { Duplex } from 'node:stream'
import { bytesOf, type StoredBytes } from '../method.ts'
import { type FrameHeader, FrameReader } from './frame.ts'

/** How a frame came. Its answer names it. */
export interface Arrival {
  /** The broker's number of the frame, the same when a restarted agent gets it again; undefined without a broker. */
  readonly number: bigint | undefined
  /** Milliseconds between the arrival of the whole frame at the broker and its arrival here; 0 without a broker. */
  readonly ageMs: number
}

/** Called by a {@link Framing} during `push`, in the order of the wire. */
export interface FramingEvents {
  /** A whole frame. `payload` may be a view of the bytes pushed. */
  onFrame(header: FrameHeader, payload: Uint8Array, arrival: Arrival): void
  /** The end of a frame that is too large. */
  onOversizedFrame(header: FrameHeader, arrival: Arrival): void
  /** The framing is about to hold so many more bytes of an incomplete frame; false drops the frame. */
  onHold(bytes: number, header: FrameHeader): boolean
  /** The framing holds so many bytes less. */
  onRelease(bytes: number): void
  /** The end of a frame that was dropped: by `onHold`, or for the reason that is given. */
  onDroppedFrame(header: FrameHeader, arrival: Arrival, reason?: string): void
}

/** A frame that answers another one. */
export interface AnswerFrame {
  /** Of the frame that is answered. */
  readonly arrival: Arrival
  readonly frame: Buffer
  /** The frame's end, which is kept apart. */
  readonly bulk?: Uint8Array | StoredBytes | undefined
  /** Called once: whether the frame was handed whole to the client's connection, or never will be. */
  readonly delivered?: ((written: boolean) => void) | undefined
  /** Called when the kernel has taken the frame from this process, or never will. */
  readonly taken: () => void
}

/**
 * How frames travel on one socket: as they are on the client's own socket, or in envelopes of the broker. Every frame that
 * has come is answered, or `nothing` is called for it.
 */
export interface Framing {
  /** The number of the frame header that the bytes end within, if its end is waited for; else undefined. */
  readonly incompleteHeader: number | undefined
  /** Returns how many bytes it has read: fewer than all when it is halted. */
  push(chunk: Buffer): number
  /** Makes `push` return after this frame. */
  halt(): void
  send(answer: AnswerFrame): void
  /** The frame gets no answer. */
  nothing(arrival: Arrival): void
  /**
   * The peer is gone: lets go of an incomplete frame, and of answers whose delivery was not told. `unread` has not been
   * pushed; no frame in it is served.
   */
  close(unread: Buffer): void
}

/** The writing side of a socket. */
export type FramedSocket = Pick<Duplex, 'write' | 'writable' | 'writableLength' | 'cork' | 'uncork'>

/** Makes the framing of a socket. */
export type OpenFraming = (socket: FramedSocket, events: FramingEvents) => Framing

/** The frames on the client's own socket. */
export const plainFraming: OpenFraming = (socket, events) => {
  const reader = new FrameReader({
    onFrame: (header, payload) => events.onFrame(header, payload, NOW),
    onOversizedFrame: (header) => events.onOversizedFrame(header, NOW),
    onHold: (bytes, header) => events.onHold(bytes, header),
    onRelease: (bytes) => events.onRelease(bytes),
    onDroppedFrame: (header) => events.onDroppedFrame(header, NOW),
  })
  return {
    get incompleteHeader() {
      return reader.incompleteHeader
    },
    push: (chunk) => reader.push(chunk),
    halt: () => reader.halt(),
    send: ({ frame, bulk, delivered, taken }) =>
      writeParts(socket, bulk === undefined ? [frame] : [frame, bytesOf(bulk)], (error) => {
        taken()
        delivered?.(error == null)
      }),
    nothing: () => {},
    close: () => reader.release(),
  }
}

const NOW: Arrival = { number: undefined, ageMs: 0 }

/** Writes buffers with one write(2) while the socket takes them. */
export function writeParts(
  socket: FramedSocket,
  parts: readonly Uint8Array[],
  written?: (error?: Error | null) => void,
): void {
  if (parts.length > 1) socket.cork()
  parts.forEach((part, index) => {
    socket.write(part, index === parts.length - 1 ? written : undefined)
  })
  if (parts.length > 1) socket.uncork()
}
