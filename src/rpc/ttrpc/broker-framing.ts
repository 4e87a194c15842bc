import type { Duplex } from 'node:stream'
import { bytesOf, type StoredBytes } from '../method.ts'
import type { StartTimer } from '../timer.ts'
import {
  bareEnvelope,
  decodeEnvelope,
  ENVELOPE_BYTES,
  type Envelope,
  EnvelopeKind,
  encodeEnvelope,
  IN_FILE,
  KEEP,
  NO_ROOM,
  SENT_BEFORE,
  writeEnvelope,
} from './envelope.ts'
import { FRAME_HEADER_BYTES, type FrameHeader, MAX_FRAME_PAYLOAD_BYTES, parseFrameHeader } from './frame.ts'

/** How a frame came. Its answer names it. */
export interface Arrival {
  /** The broker's number of the frame, the same when a restarted agent gets it again. */
  readonly number: bigint
  /** Milliseconds between the arrival of the whole frame at the broker and its arrival here. */
  readonly ageMs: number
  /** Whether the previous agent had the frame. */
  readonly sentBefore: boolean
}

/** Called by a {@link BrokerFraming} during `push`, in the order of the wire. */
export interface FramingEvents {
  /** A whole frame. `payload` may be a view of the bytes pushed. */
  onFrame(header: FrameHeader, payload: Uint8Array, arrival: Arrival): void
  /** A frame that has no room here or at the broker, as the reason says. */
  onRefusedFrame(header: FrameHeader, arrival: Arrival, reason: string): void
  /** The framing is about to hold so many bytes of an incomplete frame. Returns the reason to drop the frame, if there is one. */
  onHold(bytes: number): string | undefined
  /** The framing holds so many bytes less. */
  onRelease(bytes: number): void
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

/** The writing side of a socket. */
export type FramedSocket = Pick<Duplex, 'write' | 'writable' | 'writableLength' | 'cork' | 'uncork'>

/** The framing's part of the control socket. */
export interface BrokerLink {
  /** Confirms a delivery after the end of the data socket. */
  confirm(number: bigint): void
  /** The broker tells the delivery of an answer that the previous agent sent. */
  settled(number: bigint, written: boolean): void
  /** The request is answered with a failure, which takes nothing. */
  refused(number: bigint): void
  /** The broker has told nothing of an answer for long: its client does not read it, or the broker hangs. */
  late(): void
  /** The broker has sent what its protocol does not allow: nothing that it sends can be trusted. */
  fail(reason: string): void
}

/**
 * Sends bytes on the data socket past the stream over it, which must be empty, with a descriptor or none. Returns how many
 * bytes the kernel has taken, or less than 0.
 */
export type SendNow = (bytes: Buffer, fd?: number) => number

/** How long a confirmation may wait for an answer that it can go with, which spares the broker a wake-up. */
const CONFIRM_MS = 20

/** For how long the broker may tell nothing of an answer before {@link BrokerLink.late}. */
const LATE_MS = 30_000

/** How many confirmations wait at most. */
const CONFIRMATIONS = 64

/** An answer so short is copied behind its envelope, which costs less than writing one more buffer. */
const COPIED_BYTES = 4096

const NO_BYTES = Buffer.alloc(0)

/** The most bytes, beside one answer, that may be in files while their delivery is not known. Other answers wait. */
const BYTES_IN_FILES = 2 ** 22

/** An answer whose delivery the broker will tell. */
interface Undelivered {
  readonly delivered: (written: boolean) => void
  /** How many of its bytes are in a file. */
  readonly bytesInFile: number
}

/**
 * The frames on a data socket of the broker, each in an envelope. Every frame that has come is answered, or `nothing` is called
 * for it.
 */
export class BrokerFraming {
  readonly #socket: FramedSocket
  readonly #events: FramingEvents
  readonly #link: BrokerLink
  readonly #startTimer: StartTimer
  readonly #sendNow: SendNow | undefined
  /** Confirmations that have not been sent. */
  #unconfirmed: bigint[] = []
  #stopConfirmTimer: (() => void) | undefined
  #stopLateTimer: (() => void) | undefined
  /** An envelope that has not arrived whole. */
  readonly #head = Buffer.allocUnsafe(ENVELOPE_BYTES)
  #headBytes = 0
  #envelope: Envelope | undefined
  /** The frame of the envelope, if it comes in parts; its header alone, if the frame is dropped. */
  #frame = NO_BYTES
  /** Why that frame is dropped. */
  #noRoom: string | undefined
  /** Bytes of the frame that are still to come. */
  #bytesLeft = 0
  readonly #undelivered = new Map<bigint, Undelivered>()
  #bytesInFiles = 0
  #isHalted = false
  #isBroken = false
  /** Only deliveries count any more. */
  #isClosed = false

  /** Without `sendNow` all goes through the stream. */
  constructor(
    socket: FramedSocket,
    events: FramingEvents,
    parts: {
      readonly link: BrokerLink
      readonly startTimer: StartTimer
      readonly sendNow?: SendNow | undefined
    },
  ) {
    this.#socket = socket
    this.#events = events
    this.#link = parts.link
    this.#startTimer = parts.startTimer
    this.#sendNow = parts.sendNow
  }

  /** Returns how many bytes it has read: fewer than all when it is halted. */
  push(chunk: Buffer): number {
    this.#isHalted = false
    let offset = 0
    while (offset < chunk.length && !this.#isHalted && !this.#isBroken) {
      offset +=
        this.#envelope === undefined
          ? this.#readEnvelope(chunk, offset)
          : this.#readFrame(chunk, offset, this.#envelope)
    }
    return this.#isBroken ? chunk.length : offset
  }

  /** Makes `push` return after this frame. */
  halt(): void {
    this.#isHalted = true
  }

  send({ arrival, frame, bulk, delivered, taken }: AnswerFrame): void {
    const { number } = arrival
    const flags = delivered === undefined ? 0 : KEEP
    const frameBytes = frame.length + (bulk?.length ?? 0)
    const envelope = { kind: EnvelopeKind.answer, flags, number, ageNs: 0n, frameBytes }
    const confirmations = this.#takeConfirmations()
    const isInFile = delivered !== undefined && this.#sendInFile(confirmations, envelope, { frame, bulk })
    if (delivered !== undefined) {
      const bytesInFile = isInFile ? frameBytes - frame.length : 0
      this.#bytesInFiles += bytesInFile
      this.#undelivered.set(number, { delivered, bytesInFile })
      this.#stopLateTimer ??= this.#lookForLate()
    }
    const isShort = bulk === undefined && frame.length <= COPIED_BYTES
    if (isInFile || (isShort && this.#trySend(joined(confirmations, envelope, frame)))) taken()
    else if (isShort) this.#socket.write(joined(confirmations, envelope, frame), taken)
    else {
      const parts = [joined(confirmations, envelope, NO_BYTES), frame]
      writeParts(this.#socket, bulk === undefined ? parts : [...parts, bytesOf(bulk)], taken)
    }
  }

  /** One timer for all answers: an answer that was the oldest when it began, and still is, is late. */
  #lookForLate(): () => void {
    const [oldest] = this.#undelivered.keys()
    return this.#startTimer(LATE_MS, () => {
      const [present] = this.#undelivered.keys()
      if (present === oldest) this.#link.late()
      this.#stopLateTimer = this.#lookForLate()
    })
  }

  #stopLooking(): void {
    this.#stopLateTimer?.()
    this.#stopLateTimer = undefined
  }

  /** Sends an answer whose end the broker reads from its file. Returns false when it has to go through the socket. */
  #sendInFile(
    confirmations: readonly bigint[],
    envelope: Envelope,
    { frame, bulk }: Pick<AnswerFrame, 'frame' | 'bulk'>,
  ): boolean {
    if (bulk === undefined || bulk instanceof Uint8Array || !this.#isIdle()) return false
    const hasRoom = this.#bytesInFiles === 0 || this.#bytesInFiles + bulk.length <= BYTES_IN_FILES
    const place = hasRoom ? bulk.place : undefined
    if (place === undefined) return false
    const more = { flags: envelope.flags | IN_FILE, ageNs: BigInt(place.offset), fileBytes: bulk.length }
    return this.#trySend(joined(confirmations, { ...envelope, ...more }, frame), place.fd)
  }

  #isIdle(): boolean {
    return this.#sendNow !== undefined && this.#socket.writable && this.#socket.writableLength === 0
  }

  /** Sends bytes past the stream, when nothing waits in it. Returns false when nothing was sent. */
  #trySend(bytes: Buffer, fd?: number): boolean {
    if (!this.#isIdle()) return false
    const sent = this.#sendNow?.(bytes, fd) ?? -1
    if (sent <= 0) return false
    if (sent < bytes.length) this.#socket.write(bytes.subarray(sent))
    return true
  }

  /** The frame gets no answer. */
  nothing({ number }: Arrival): void {
    if (this.#socket.writable) this.#socket.write(encodeEnvelope(bareEnvelope(EnvelopeKind.nothing, number)))
  }

  /**
   * The peer is gone: lets go of an incomplete frame, and of answers whose delivery was not told. `unread` has not been
   * pushed; no frame in it is served.
   */
  close(unread: Buffer): void {
    this.#isClosed = true
    this.push(unread)
    this.#confirm()
    this.#isBroken = true
    this.#release()
    // The broker has dropped those of which it has told nothing before the end.
    for (const { delivered } of this.#undelivered.values()) delivered(false)
    this.#undelivered.clear()
    this.#stopLooking()
  }

  #readEnvelope(chunk: Buffer, offset: number): number {
    if (this.#headBytes === 0 && chunk.length - offset >= ENVELOPE_BYTES) {
      this.#begin(decodeEnvelope(chunk, offset))
      return ENVELOPE_BYTES
    }
    const copied = chunk.copy(this.#head, this.#headBytes, offset)
    this.#headBytes += copied
    if (this.#headBytes === ENVELOPE_BYTES) {
      this.#headBytes = 0
      this.#begin(decodeEnvelope(this.#head, 0))
    }
    return copied
  }

  #begin(envelope: Envelope): void {
    const { kind, number, frameBytes } = envelope
    switch (kind) {
      case EnvelopeKind.written:
      case EnvelopeKind.dropped:
        this.#onDelivery(number, kind === EnvelopeKind.written)
        return
      case EnvelopeKind.request:
      case EnvelopeKind.oversized:
        this.#envelope = envelope
        this.#bytesLeft = frameBytes
        if (!isFrameLength(envelope)) this.#break(`request ${number}: frame of ${frameBytes} bytes`)
        return
      default:
        this.#break(`envelope of kind ${kind}, want 1 to 4`)
    }
  }

  #onDelivery(number: bigint, written: boolean): void {
    const answer = this.#undelivered.get(number)
    if (answer === undefined) {
      this.#link.settled(number, written)
      return
    }
    this.#undelivered.delete(number)
    if (this.#undelivered.size === 0) this.#stopLooking()
    this.#bytesInFiles -= answer.bytesInFile
    answer.delivered(written)
    this.#unconfirmed.push(number)
    if (this.#unconfirmed.length >= CONFIRMATIONS || !this.#socket.writable) this.#confirm()
    else this.#stopConfirmTimer ??= this.#startTimer(CONFIRM_MS, () => this.#confirm())
  }

  #readFrame(chunk: Buffer, offset: number, envelope: Envelope): number {
    const read = Math.min(chunk.length - offset, this.#bytesLeft)
    const part = chunk.subarray(offset, offset + read)
    const isWhole = read === envelope.frameBytes
    if (!isWhole) this.#keep(part, envelope)
    this.#bytesLeft -= read
    if (this.#bytesLeft === 0) {
      const frame = isWhole ? part : this.#frame
      this.#envelope = undefined
      this.#release()
      this.#endFrame(envelope, frame)
    }
    return read
  }

  #keep(part: Buffer, { frameBytes }: Envelope): void {
    if (this.#bytesLeft === frameBytes) {
      this.#noRoom = this.#isClosed ? 'the client is gone' : this.#events.onHold(frameBytes)
      this.#frame = Buffer.allocUnsafeSlow(this.#noRoom === undefined ? frameBytes : FRAME_HEADER_BYTES)
    }
    // What a dropped frame has no room for is not copied.
    part.copy(this.#frame, frameBytes - this.#bytesLeft)
  }

  #release(): void {
    if (this.#frame.length > 0 && this.#noRoom === undefined) this.#events.onRelease(this.#frame.length)
    this.#frame = NO_BYTES
  }

  #endFrame({ kind, flags, number, ageNs, frameBytes }: Envelope, frame: Buffer): void {
    const noRoom = this.#noRoom
    this.#noRoom = undefined
    if (this.#isClosed) return
    const header = parseFrameHeader(frame, 0)
    const arrival = { number, ageMs: Number(ageNs) / 1e6, sentBefore: (flags & SENT_BEFORE) !== 0 }
    const refuse = (reason: string) => this.#events.onRefusedFrame(header, arrival, reason)
    if (kind !== EnvelopeKind.request) {
      const tooLarge = `message of ${header.payloadBytes} bytes is larger than ${MAX_FRAME_PAYLOAD_BYTES}`
      refuse((flags & NO_ROOM) === 0 ? tooLarge : 'the broker has no room for the request')
    } else if (header.payloadBytes !== frameBytes - FRAME_HEADER_BYTES) {
      this.#break(`request ${number}: its lengths differ`)
    } else if (noRoom === undefined) {
      this.#events.onFrame(header, frame.subarray(FRAME_HEADER_BYTES), arrival)
    } else refuse(noRoom)
  }

  /** Sends the confirmations that wait. */
  #confirm(): void {
    const numbers = this.#takeConfirmations()
    if (numbers.length === 0) return
    if (this.#socket.writable) {
      const envelopes = numbers.map((number) => encodeEnvelope(bareEnvelope(EnvelopeKind.confirm, number)))
      this.#socket.write(Buffer.concat(envelopes))
    } else {
      for (const number of numbers) this.#link.confirm(number)
    }
  }

  #takeConfirmations(): readonly bigint[] {
    this.#stopConfirmTimer?.()
    this.#stopConfirmTimer = undefined
    const numbers = this.#unconfirmed
    if (numbers.length > 0) this.#unconfirmed = []
    return numbers
  }

  #break(reason: string): void {
    this.#isBroken = true
    this.#link.fail(reason)
  }
}

function isFrameLength({ kind, frameBytes }: Envelope): boolean {
  const mostPayload = kind === EnvelopeKind.oversized ? 0 : MAX_FRAME_PAYLOAD_BYTES
  return frameBytes >= FRAME_HEADER_BYTES && frameBytes <= FRAME_HEADER_BYTES + mostPayload
}

/** Confirmations, an envelope and a frame in one buffer. */
function joined(confirmations: readonly bigint[], envelope: Envelope, frame: Buffer): Buffer {
  const bytes = Buffer.allocUnsafe(ENVELOPE_BYTES * (confirmations.length + 1) + frame.length)
  let end = 0
  for (const number of confirmations)
    end = writeEnvelope(bytes, end, bareEnvelope(EnvelopeKind.confirm, number))
  frame.copy(bytes, writeEnvelope(bytes, end, envelope))
  return bytes
}

/** Writes buffers with one write(2) while the socket takes them. */
function writeParts(socket: FramedSocket, parts: readonly Uint8Array[], written: () => void): void {
  socket.cork()
  parts.forEach((part, index) => {
    socket.write(part, index === parts.length - 1 ? written : undefined)
  })
  socket.uncork()
}
