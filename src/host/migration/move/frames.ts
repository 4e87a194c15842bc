import { abortable } from '../../../base/abort.ts'
import { AgentError } from '../../../base/errors.ts'
import {
  type MoveContent,
  type MoveEnd,
  type MovePlan,
  MoveRequest,
  type MoveRing,
} from '../../../gen/microvm/instance/v1/handover.ts'
import { ringCapacity } from '../../instance/holder/holder-files.ts'
import type { HandoverStream } from '../../instance/moves.ts'

const PIECE_BYTES = 60 * 1024
/** An envelope has less. */
const MOST_BYTES = 16 << 20
/** Of the console and all streams, of which one at a time is in memory. */
const MOST_RINGS = 4097
const MOST_RING_BYTES = 512 << 20

type Send = (request: MoveRequest) => Promise<void>

/** Sends an envelope, or what is kept of a stream. */
export async function sendContent(send: Send, bytes: Uint8Array, ring?: MoveRing): Promise<void> {
  await send(MoveRequest.fromPartial({ content: { sizeBytes: BigInt(bytes.length), ...(ring && { ring }) } }))
  for (let at = 0; at < bytes.length; at += PIECE_BYTES)
    await send(MoveRequest.fromPartial({ piece: bytes.subarray(at, at + PIECE_BYTES) }))
}

export interface ReceivedRing extends MoveRing {
  readonly bytes: Uint8Array
}

export interface Rest {
  readonly envelope: Uint8Array
  readonly end: MoveEnd
}

/** What a source hands over, in its order. Throws INVALID_ARGUMENT for what breaks it, and ABORTED when the stream ends before. */
export class HandoverReader {
  readonly #requests: AsyncIterator<MoveRequest>

  constructor(requests: HandoverStream) {
    this.#requests = requests[Symbol.asyncIterator]()
  }

  async plan(): Promise<MovePlan> {
    const { plan } = await this.#next()
    if (plan === undefined) throw invalid('the first message has no plan')
    return plan
  }

  /** The envelope that follows the plan. */
  async envelope(): Promise<Uint8Array> {
    const { content } = await this.#next()
    if (content === undefined || content.ring !== undefined) throw invalid('no envelope, want it')
    return await this.#bytes(content)
  }

  /** What comes when the machine stands still: an envelope, rings, each of which is for `take` as it comes, and the end. */
  async rest(take: (ring: ReceivedRing) => Promise<void>): Promise<Rest> {
    const envelope = await this.envelope()
    for (let bytes = 0, rings = 0; ; rings++) {
      const { content, end } = await this.#next()
      if (end !== undefined) return { envelope, end }
      if (content?.ring === undefined) throw invalid('neither a ring nor the end, want one of them')
      bytes += Number(content.sizeBytes)
      if (rings === MOST_RINGS || bytes > MOST_RING_BYTES)
        throw invalid(`more than ${MOST_RINGS} rings or ${MOST_RING_BYTES} bytes of them`)
      const { number } = content.ring
      if (content.sizeBytes > ringCapacity(number))
        throw invalid(`ring ${number}: ${content.sizeBytes} bytes, want at most ${ringCapacity(number)}`)
      await take({ ...content.ring, bytes: await this.#bytes(content) })
    }
  }

  async #next(): Promise<MoveRequest> {
    const { done, value } = await this.#requests.next()
    if (done !== true) return value
    throw new AgentError('ABORTED', 'the source has ended the handover before its end')
  }

  async #bytes({ sizeBytes }: MoveContent): Promise<Uint8Array> {
    if (sizeBytes > BigInt(MOST_BYTES)) throw invalid(`${sizeBytes} bytes, want at most ${MOST_BYTES}`)
    const bytes = new Uint8Array(Number(sizeBytes))
    for (let at = 0; at < bytes.length; ) {
      const { piece } = await this.#next()
      if (piece === undefined || piece.length === 0) throw invalid(`${at} of ${bytes.length} bytes, want all`)
      if (at + piece.length > bytes.length) throw invalid(`more than ${bytes.length} bytes`)
      bytes.set(piece, at)
      at += piece.length
    }
    return bytes
  }
}

function invalid(text: string): AgentError {
  return new AgentError('INVALID_ARGUMENT', `handover: ${text}`)
}

/** Reads what a handover is for. */
export async function readPlan(
  requests: HandoverStream,
  ms: number,
): Promise<{ plan: MovePlan; reader: HandoverReader }> {
  const reader = new HandoverReader(requests)
  const late = AbortSignal.timeout(ms)
  return { plan: await abortable(reader.plan(), late), reader }
}
