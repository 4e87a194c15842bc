import { bytesOf, type StoredBytes } from '../../base/stored-bytes.ts'
import type { StartTimer } from '../timer.ts'
import { DataSocketWriter, type FramedSocket, type SendNow } from './data-socket-writer.ts'
import {
  bareEnvelope,
  decodeEnvelope,
  ENVELOPE_BYTES,
  type Envelope,
  EnvelopeKind,
  encodeEnvelope,
  FRAME_IN_FILE,
  IN_FILE,
  KEEP,
  NO_ROOM,
  SENT_BEFORE,
  writeEnvelope,
} from './envelope.ts'
import { FRAME_HEADER_BYTES, type FrameHeader, MAX_FRAME_PAYLOAD_BYTES, parseFrameHeader } from './frame.ts'
import type { FrameFiles } from './stored-request.ts'

export interface Arrival {
  /** The broker's number of the frame; it stays the same when a restarted agent gets the frame again. */
  readonly number: bigint
  /** The time between the arrival of the whole frame at the broker and its arrival here. */
  readonly ageMs: number
  /** The previous agent had the frame. */
  readonly sentBefore: boolean
}

/** Called by a {@link BrokerFraming} during `push`, in the order of the wire. */
export interface FramingEvents {
  /** `payload` may be a view of the pushed bytes. */
  onFrame(header: FrameHeader, payload: Uint8Array, arrival: Arrival): void
  /** A frame arrived in a file, which the receiver closes. */
  onStoredFrame(header: FrameHeader, fd: number, arrival: Arrival): void
  /** A frame was dropped because the agent or the broker has no room for it. */
  onRefusedFrame(header: FrameHeader, arrival: Arrival, reason: string): void
  /** The framing is about to buffer a frame of `bytes`. Returns the reason to drop the frame, if any. */
  onHold(bytes: number): string | undefined
  onRelease(bytes: number): void
  /** The kernel has taken answers, or never will. */
  onTaken(): void
}

export interface AnswerFrame {
  readonly arrival: Arrival
  readonly frame: Buffer
  /** The end of the frame, which is not copied behind `frame`. */
  readonly bulk?: Uint8Array | StoredBytes | undefined
  /** Called once: whether the client's connection took the whole frame. */
  readonly delivered?: ((written: boolean) => void) | undefined
}

/** The control socket as the framing uses it. */
export interface BrokerLink {
  /** Confirms a delivery after the end of the data socket. */
  confirm(number: bigint): void
  /** The broker reports the delivery of an answer of the previous agent. */
  settled(number: bigint, written: boolean): void
  /** The request is answered with a failure, which consumes nothing. */
  refused(number: bigint): void
  /** The broker has not reported on an answer for long: the client does not read it, or the broker hangs. */
  late(): void
  /** The broker has violated its protocol; nothing that it sends can be trusted. */
  fail(reason: string): void
}

/** How long a confirmation may wait to be sent with an answer, which saves the broker a wake-up. */
const CONFIRM_MS = 20

/** How long the delivery of an answer may be unknown before {@link BrokerLink.late}. */
const LATE_MS = 30_000

/** The most confirmations that wait. */
const CONFIRMATIONS = 64

/** An answer up to this size is copied behind its envelope, which costs less than one more buffer to write. */
const COPIED_BYTES = 4096

const NO_BYTES = Buffer.alloc(0)

/** The most bytes in files whose delivery is unknown, beyond one answer. Further answers go through the socket. */
const BYTES_IN_FILES = 2 ** 22

interface Undelivered {
  readonly delivered: (written: boolean) => void
  readonly bytesInFile: number
}

/** The frames on a data socket of the broker, in envelopes. Each received frame gets an answer, or {@link nothing}. */
export class BrokerFraming {
  /** Whether the client has not hung up, but its device is gone. All calls share the function, which keeps none of them. */
  readonly wasLost = () => this.#isLost
  #isLost = false
  readonly #writer: DataSocketWriter
  readonly #events: FramingEvents
  readonly #link: BrokerLink
  readonly #startTimer: StartTimer
  readonly #files: FrameFiles | undefined
  #unconfirmed: bigint[] = []
  #stopConfirmTimer: (() => void) | undefined
  #stopLateTimer: (() => void) | undefined
  /** The arrived part of an incomplete envelope. */
  readonly #head = Buffer.allocUnsafe(ENVELOPE_BYTES)
  #headBytes = 0
  #envelope: Envelope | undefined
  /** The frame, if it arrives in parts; only its header, if the frame is dropped. */
  #frame = NO_BYTES
  #noRoom: string | undefined
  #bytesLeft = 0
  readonly #undelivered = new Map<bigint, Undelivered>()
  #bytesInFiles = 0
  #isHalted = false
  #isBroken = false
  /** Only reports of deliveries are still handled. */
  #isClosed = false

  /** Without `sendNow` everything goes through the stream. */
  constructor(
    socket: FramedSocket,
    events: FramingEvents,
    parts: {
      readonly link: BrokerLink
      readonly startTimer: StartTimer
      readonly sendNow?: SendNow | undefined
      readonly files?: FrameFiles | undefined
    },
  ) {
    this.#writer = new DataSocketWriter(socket, parts.sendNow, () => events.onTaken())
    this.#events = events
    this.#link = parts.link
    this.#startTimer = parts.startTimer
    this.#files = parts.files
  }

  /** Returns the number of bytes read: fewer than all after `halt`. */
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

  /** The bytes of answers that the kernel has not taken. */
  get unsentBytes(): number {
    return this.#writer.unsentBytes
  }

  /** The answers of one turn of the event loop are sent together at its end, or by `flush`. */
  send({ arrival, frame, bulk, delivered }: AnswerFrame): void {
    const { number } = arrival
    const flags = delivered === undefined ? 0 : KEEP
    const frameBytes = frame.length + (bulk?.length ?? 0)
    const envelope = { kind: EnvelopeKind.answer, flags, number, ageNs: 0, frameBytes }
    const confirmations = this.#takeConfirmations()
    const isInFile = delivered !== undefined && this.#sendInFile(confirmations, envelope, { frame, bulk })
    if (delivered !== undefined) {
      const bytesInFile = isInFile ? frameBytes - frame.length : 0
      this.#bytesInFiles += bytesInFile
      this.#undelivered.set(number, { delivered, bytesInFile })
      this.#stopLateTimer ??= this.#lookForLate()
    }
    if (isInFile) return
    if (bulk !== undefined) this.#writer.writeBoth(joined(confirmations, envelope, frame), bytesOf(bulk))
    else if (frame.length > COPIED_BYTES)
      this.#writer.writeBoth(joined(confirmations, envelope, NO_BYTES), frame)
    else this.#writer.enqueue(joined(confirmations, envelope, frame))
  }

  flush(): void {
    this.#writer.flush()
  }

  /** One timer for all answers: an answer is late if it is the oldest both when the timer starts and when it ends. */
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

  /** Sends an answer whose end is in a file for the broker. Returns false when it has to go through the socket. */
  #sendInFile(
    confirmations: readonly bigint[],
    envelope: Envelope,
    { frame, bulk }: Pick<AnswerFrame, 'frame' | 'bulk'>,
  ): boolean {
    if (bulk === undefined || bulk instanceof Uint8Array || !this.#writer.isIdle) return false
    const hasRoom = this.#bytesInFiles === 0 || this.#bytesInFiles + bulk.length <= BYTES_IN_FILES
    const place = hasRoom ? bulk.place : undefined
    if (place === undefined) return false
    const more = { flags: envelope.flags | IN_FILE, ageNs: place.offset, fileBytes: bulk.length }
    this.flush()
    return this.#writer.trySend(joined(confirmations, { ...envelope, ...more }, frame), place.fd)
  }

  /** Tells the broker that the frame gets no answer. */
  nothing({ number }: Arrival): void {
    if (this.#writer.isOpen) this.#writer.write(encodeEnvelope(bareEnvelope(EnvelopeKind.nothing, number)))
  }

  /** The peer is gone: drops an incomplete frame and the unreported answers. No frame in `unread` is served. */
  close(unread: Buffer): void {
    this.#isClosed = true
    this.push(unread)
    this.#confirm()
    this.#isBroken = true
    this.#release()
    // The broker drops the answers that it has not reported before the end.
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
      case EnvelopeKind.lost:
        this.#isLost = true
        return
      case EnvelopeKind.request:
      case EnvelopeKind.oversized:
        if ((envelope.flags & FRAME_IN_FILE) !== 0 && kind === EnvelopeKind.request) {
          this.#takeStored(envelope)
          return
        }
        this.#envelope = envelope
        this.#bytesLeft = frameBytes
        if (!isFrameLength(envelope)) this.#break(`request ${number}: frame of ${frameBytes} bytes`)
        return
      default:
        this.#break(`envelope of kind ${kind}, want 1 to 5`)
    }
  }

  #takeStored(envelope: Envelope): void {
    const { number, frameBytes } = envelope
    const fd = this.#files?.take(number)
    if (fd === undefined) {
      // The end of the connection closes its files, maybe earlier.
      if (!this.#isClosed) this.#break(`request ${number}: no file`)
      return
    }
    const header = parseFrameHeader(this.#files?.read(fd, 0, FRAME_HEADER_BYTES) ?? NO_BYTES, 0)
    const isWhole = isFrameLength(envelope) && header.payloadBytes === frameBytes - FRAME_HEADER_BYTES
    if (isWhole && !this.#isClosed) {
      this.#events.onStoredFrame(header, fd, arrivalOf(envelope))
      return
    }
    this.#files?.close(fd)
    if (!isWhole) this.#break(`request ${number}: its lengths differ`)
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
    if (this.#unconfirmed.length >= CONFIRMATIONS || !this.#writer.isOpen) this.#confirm()
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
    // `copy` truncates a dropped frame to its header.
    part.copy(this.#frame, frameBytes - this.#bytesLeft)
  }

  #release(): void {
    if (this.#frame.length > 0 && this.#noRoom === undefined) this.#events.onRelease(this.#frame.length)
    this.#frame = NO_BYTES
  }

  #endFrame(envelope: Envelope, frame: Buffer): void {
    const { kind, flags, number, frameBytes } = envelope
    const noRoom = this.#noRoom
    this.#noRoom = undefined
    if (this.#isClosed) return
    const header = parseFrameHeader(frame, 0)
    const arrival = arrivalOf(envelope)
    if (kind !== EnvelopeKind.request) {
      this.#events.onRefusedFrame(header, arrival, refusalOf(header, flags))
    } else if (header.payloadBytes !== frameBytes - FRAME_HEADER_BYTES) {
      this.#break(`request ${number}: its lengths differ`)
    } else if (noRoom === undefined) {
      this.#events.onFrame(header, frame.subarray(FRAME_HEADER_BYTES), arrival)
    } else this.#events.onRefusedFrame(header, arrival, noRoom)
  }

  #confirm(): void {
    const numbers = this.#takeConfirmations()
    if (numbers.length === 0) return
    if (this.#writer.isOpen) {
      const envelopes = numbers.map((number) => encodeEnvelope(bareEnvelope(EnvelopeKind.confirm, number)))
      this.#writer.write(Buffer.concat(envelopes))
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

function arrivalOf({ number, ageNs, flags }: Envelope): Arrival {
  return { number, ageMs: ageNs / 1e6, sentBefore: (flags & SENT_BEFORE) !== 0 }
}

function refusalOf({ payloadBytes }: FrameHeader, flags: number): string {
  return (flags & NO_ROOM) === 0
    ? `message of ${payloadBytes} bytes is larger than ${MAX_FRAME_PAYLOAD_BYTES}`
    : 'the broker has no room for the request'
}

function isFrameLength({ kind, frameBytes }: Envelope): boolean {
  const mostPayload = kind === EnvelopeKind.oversized ? 0 : MAX_FRAME_PAYLOAD_BYTES
  return frameBytes >= FRAME_HEADER_BYTES && frameBytes <= FRAME_HEADER_BYTES + mostPayload
}

function joined(confirmations: readonly bigint[], envelope: Envelope, frame: Buffer): Buffer {
  const bytes = Buffer.allocUnsafe(ENVELOPE_BYTES * (confirmations.length + 1) + frame.length)
  let end = 0
  for (const number of confirmations)
    end = writeEnvelope(bytes, end, bareEnvelope(EnvelopeKind.confirm, number))
  frame.copy(bytes, writeEnvelope(bytes, end, envelope))
  return bytes
}
