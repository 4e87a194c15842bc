import { AgentError } from '../../base/errors.ts'
import { errnoName, kernelError, succeeded } from '../errors.ts'
import type { Native } from '../native.ts'
import type { Fd } from '../os.ts'
import {
  type Attribute,
  decodeAttributes,
  decodeMessages,
  encodeMessage,
  type Message,
  textOf,
} from './message.ts'

/** A request: its type (RTM_), the fixed part of that type, and attributes. */
export interface Request {
  readonly type: number
  readonly fixed: Uint8Array
  readonly attributes?: readonly Attribute[]
}

/** NLM_F_. */
const REQUEST = 0x1
const ACK = 0x4
const DUMP = 0x300
const DUMP_INTERRUPTED = 0x10
const CAPPED = 0x100
const ACK_TLVS = 0x200
/** NLMSG_. */
const ERROR = 2
const DONE = 3
/** NLMSGERR_ATTR_MSG. */
const KERNEL_WORDS = 1

/** No datagram of the kernel is larger. */
const READ_BYTES = 65536
/** A list is read anew when it changed meanwhile, so many times. */
const MOST_DUMPS = 10

/**
 * Requests to the kernel's rtnetlink. The kernel works on a request while it is written, so its answer is there when
 * the write returns and nothing waits on the loop. The socket is opened by the first request and stays open; after a
 * failure of the socket itself the next request opens another.
 */
export class RouteSocket {
  readonly #native: Native
  #fd: Fd | undefined
  #sequence = 0

  constructor(native: Native) {
    this.#native = native
  }

  /** Has the kernel change something. Throws what it answers, as `<call> <subject>: <ERRNO> (<its words>)`. */
  change(request: Request, flags: number, call: string, subject: string): void {
    this.#exchange(request, flags | ACK, call, subject)
  }

  /** The messages of a list. */
  list(request: Request, what: string): readonly Message[] {
    for (let attempt = 1; ; attempt++) {
      const messages = this.#exchange(request, DUMP, 'list', what)
      const interrupted = messages.some(({ flags }) => (flags & DUMP_INTERRUPTED) !== 0)
      if (!interrupted) return messages.slice(0, -1)
      if (attempt === MOST_DUMPS) throw kernelError('list', `${what}, which kept changing`, 'EINTR')
    }
  }

  /** Sends a request; its answers, of which the last is an acknowledgement or the end of a list. */
  #exchange(request: Request, flags: number, call: string, subject: string): readonly Message[] {
    const fd = this.#fd ?? succeeded('open', 'a netlink socket', this.#native.netlinkRoute())
    this.#fd = fd
    this.#sequence = (this.#sequence + 1) >>> 0
    const { type, fixed, attributes = [] } = request
    const bytes = encodeMessage({ type, flags: REQUEST | flags, sequence: this.#sequence, fixed, attributes })
    let messages: readonly Message[]
    try {
      succeeded(call, subject, this.#native.write(fd, bytes))
      messages = this.#readAll(fd, call, subject)
    } catch (error) {
      // Answers may be left in it that must not be taken for those of a later request.
      this.#native.close(fd)
      this.#fd = undefined
      throw error
    }
    const last = messages.at(-1)
    if (last !== undefined) throwFailure(last, call, subject)
    return messages
  }

  /** Until the acknowledgement of a change, or the end of a list. */
  #readAll(fd: Fd, call: string, subject: string): readonly Message[] {
    const messages: Message[] = []
    for (;;) {
      const datagram = this.#native.read(fd, READ_BYTES)
      if (typeof datagram === 'number') throw kernelError(call, subject, errnoName(-datagram))
      for (const message of decodeMessages(datagram)) {
        if (message.sequence !== this.#sequence) continue
        messages.push(message)
        if (message.type === ERROR || message.type === DONE) return messages
      }
    }
  }
}

/** Throws unless an acknowledgement, or the end of a list, says that all went well. */
function throwFailure({ type, flags, payload }: Message, call: string, subject: string): void {
  const errno = payload.length < 4 ? 0 : -payload.readInt32LE(0)
  if (errno === 0) return
  const name = errnoName(errno)
  const words = type === ERROR ? wordsOf(flags, payload) : ''
  throw new AgentError('INTERNAL', `${call} ${subject}: ${name}${words === '' ? '' : ` (${words})`}`, {
    errno: name,
  })
}

/** What the kernel says besides the number: attributes behind the header of the request, or all of it (CAP_ACK). */
function wordsOf(flags: number, payload: Buffer): string {
  if ((flags & ACK_TLVS) === 0) return ''
  const requestBytes = (flags & CAPPED) === 0 ? payload.readUInt32LE(4) : 16
  const words = decodeAttributes(payload.subarray(4 + requestBytes)).get(KERNEL_WORDS)
  return words === undefined ? '' : textOf(words).replace(/\.$/, '')
}
