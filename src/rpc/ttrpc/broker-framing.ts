import { bytesOf } from '../method.ts'
import type { StartTimer } from '../timer.ts'
import { FRAME_HEADER_BYTES, FrameReader, MAX_FRAME_PAYLOAD_BYTES, parseFrameHeader } from './frame.ts'
import {
  type AnswerFrame,
  type Arrival,
  type FramedSocket,
  type Framing,
  type OpenFraming,
  writeParts,
} from './framing.ts'

/** Bytes of the envelope of a frame on a data socket of the broker (docs/broker.md). */
export const ENVELOPE_BYTES = 32

/** The kinds of envelopes; the broker's own list is in native/broker/protocol.h. */
export const EnvelopeKind = {
  request: 1,
  oversized: 2,
  written: 3,
  dropped: 4,
  answer: 16,
  nothing: 17,
  confirm: 18,
} as const

/** Of an answer: the broker tells what becomes of it, and remembers that until it is confirmed. */
export const KEEP = 1

/** Of an answer: its end is not in the socket, but in a file in memory that comes with the envelope. */
export const IN_FILE = 2

/** Of an oversized frame: it is not too large, but the broker's limits had no room for it. */
export const NO_ROOM = 2

/** Little endian: `u32 kind, u32 flags, u64 number, u64 age_ns, u32 frame_bytes, u32 file_bytes`. */
export interface Envelope {
  readonly kind: number
  readonly flags: number
  readonly number: bigint
  /** Of an answer with {@link IN_FILE}: where its bytes begin in the file. */
  readonly ageNs: bigint
  /** Of the frame that follows, with its header. */
  readonly frameBytes: number
  /** How many of them, at its end, are in the file; 0 by default. */
  readonly fileBytes?: number
}

export function encodeEnvelope(envelope: Envelope): Buffer {
  const bytes = Buffer.allocUnsafe(ENVELOPE_BYTES)
  writeEnvelope(bytes, 0, envelope)
  return bytes
}

/** Writes the envelope at `offset`. Returns where it ends. */
function writeEnvelope(bytes: Buffer, offset: number, envelope: Envelope): number {
  const { kind, flags, number, ageNs, frameBytes, fileBytes = 0 } = envelope
  bytes.writeUInt32LE(kind, offset)
  bytes.writeUInt32LE(flags, offset + 4)
  bytes.writeBigUInt64LE(number, offset + 8)
  bytes.writeBigUInt64LE(ageNs, offset + 16)
  bytes.writeUInt32LE(frameBytes, offset + 24)
  bytes.writeUInt32LE(fileBytes, offset + 28)
  return offset + ENVELOPE_BYTES
}

/** Decodes the envelope that begins at `offset`. */
export function decodeEnvelope(bytes: Buffer, offset: number): Envelope {
  return {
    kind: bytes.readUInt32LE(offset),
    flags: bytes.readUInt32LE(offset + 4),
    number: bytes.readBigUInt64LE(offset + 8),
    ageNs: bytes.readBigUInt64LE(offset + 16),
    frameBytes: bytes.readUInt32LE(offset + 24),
  }
}

/** The framing's part of the control socket. */
export interface BrokerLink {
  /** Confirms a delivery after the end of the data socket. */
  confirm(number: bigint): void
  /** The broker tells the delivery of an answer that an agent before this one has sent. */
  settled(number: bigint, written: boolean): void
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

/** The frames on a data socket of the broker, each in an envelope. Without `sendNow` all go through the stream. */
export function brokerFraming(link: BrokerLink, startTimer: StartTimer, sendNow?: SendNow): OpenFraming {
  return (socket, events) => new BrokerFraming(socket, events, { link, startTimer, sendNow })
}

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

class BrokerFraming implements Framing {
  // The broker itself limits the time for a client's frame header.
  readonly incompleteHeader = undefined
  readonly #socket: FramedSocket
  readonly #events: Parameters<OpenFraming>[1]
  readonly #link: BrokerLink
  readonly #startTimer: StartTimer
  readonly #sendNow: SendNow | undefined
  /** Confirmations that have not been sent. */
  #unconfirmed: bigint[] = []
  #stopConfirmTimer: (() => void) | undefined
  #stopLateTimer: (() => void) | undefined
  readonly #frames: FrameReader
  /** An envelope, or the header of an oversized frame, that has not arrived whole. */
  readonly #head = Buffer.allocUnsafe(ENVELOPE_BYTES)
  #headBytes = 0
  #envelope: Envelope | undefined
  #arrival: Arrival = { number: undefined, ageMs: 0 }
  /** Bytes of the frame that are still to come. */
  #bytesLeft = 0
  /** Whether the frame that is being read has been told. */
  #isFrameOver = false
  readonly #undelivered = new Map<bigint, Undelivered>()
  #bytesInFiles = 0
  #isHalted = false
  #isBroken = false
  /** Only deliveries count any more. */
  #isClosed = false

  constructor(
    socket: FramedSocket,
    events: Parameters<OpenFraming>[1],
    parts: {
      readonly link: BrokerLink
      readonly startTimer: StartTimer
      readonly sendNow: SendNow | undefined
    },
  ) {
    this.#socket = socket
    this.#events = events
    this.#link = parts.link
    this.#startTimer = parts.startTimer
    this.#sendNow = parts.sendNow
    this.#frames = new FrameReader({
      onFrame: (header, payload) => this.#endFrame(() => events.onFrame(header, payload, this.#arrival)),
      onOversizedFrame: (header) => this.#endFrame(() => events.onOversizedFrame(header, this.#arrival)),
      onHold: (bytes, header) => !this.#isClosed && events.onHold(bytes, header),
      onRelease: (bytes) => events.onRelease(bytes),
      onDroppedFrame: (header) => this.#endFrame(() => events.onDroppedFrame(header, this.#arrival)),
    })
  }

  push(chunk: Buffer): number {
    this.#isHalted = false
    let offset = 0
    while (offset < chunk.length && !this.#isHalted && !this.#isBroken) {
      if (this.#envelope === undefined) offset += this.#readEnvelope(chunk, offset)
      else if (this.#envelope.kind === EnvelopeKind.oversized)
        offset += this.#readOversized(chunk, offset, this.#envelope)
      else offset += this.#readFrame(chunk, offset, this.#envelope.number)
    }
    return this.#isBroken ? chunk.length : offset
  }

  halt(): void {
    this.#isHalted = true
    this.#frames.halt()
  }

  send({ arrival, frame, bulk, delivered, taken }: AnswerFrame): void {
    const number = numberOf(arrival)
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

  nothing(arrival: Arrival): void {
    if (!this.#socket.writable) return
    this.#socket.write(encodeEnvelope(bare(EnvelopeKind.nothing, numberOf(arrival))))
  }

  close(unread: Buffer): void {
    this.#isClosed = true
    this.push(unread)
    this.#confirm()
    this.#isBroken = true
    this.#frames.release()
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
        this.#arrival = { number, ageMs: Number(envelope.ageNs) / 1e6 }
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

  #readFrame(chunk: Buffer, offset: number, number: bigint): number {
    this.#isFrameOver = false
    const read = this.#frames.push(chunk.subarray(offset, offset + this.#bytesLeft))
    this.#bytesLeft -= read
    if (this.#isFrameOver !== (this.#bytesLeft === 0)) this.#break(`request ${number}: its lengths differ`)
    if (this.#bytesLeft === 0) this.#envelope = undefined
    return read
  }

  /** The payload of an oversized frame stays with the broker. */
  #readOversized(chunk: Buffer, offset: number, { flags }: Envelope): number {
    const copied = chunk.copy(this.#head, this.#headBytes, offset, offset + this.#bytesLeft)
    this.#headBytes += copied
    this.#bytesLeft -= copied
    if (this.#bytesLeft === 0) {
      this.#headBytes = 0
      this.#envelope = undefined
      const header = parseFrameHeader(this.#head, 0)
      if (this.#isClosed) return copied
      if ((flags & NO_ROOM) === 0) this.#events.onOversizedFrame(header, this.#arrival)
      else this.#events.onDroppedFrame(header, this.#arrival, 'the broker has no room for the request')
    }
    return copied
  }

  /** Sends the confirmations that wait. */
  #confirm(): void {
    const numbers = this.#takeConfirmations()
    if (numbers.length === 0) return
    if (this.#socket.writable) {
      const envelopes = numbers.map((number) => encodeEnvelope(bare(EnvelopeKind.confirm, number)))
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

  #endFrame(tell: () => void): void {
    this.#isFrameOver = true
    this.#frames.halt()
    if (!this.#isClosed) tell()
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

/** Frames of the broker have numbers. */
function numberOf({ number }: Arrival): bigint {
  if (number === undefined) throw new Error('a frame of the broker has no number')
  return number
}

/** Confirmations, an envelope and a frame in one buffer. */
function joined(confirmations: readonly bigint[], envelope: Envelope, frame: Buffer): Buffer {
  const bytes = Buffer.allocUnsafe(ENVELOPE_BYTES * (confirmations.length + 1) + frame.length)
  let end = 0
  for (const number of confirmations) end = writeEnvelope(bytes, end, bare(EnvelopeKind.confirm, number))
  frame.copy(bytes, writeEnvelope(bytes, end, envelope))
  return bytes
}

/** An envelope without a frame. */
function bare(kind: number, number: bigint): Envelope {
  return { kind, flags: 0, number, ageNs: 0n, frameBytes: 0 }
}
