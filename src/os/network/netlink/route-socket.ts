import { AgentError } from '../../../base/errors.ts'
import { checkErrno, errnoName, kernelError } from '../../errors.ts'
import type { Native } from '../../native.ts'
import type { Fd } from '../../streams/streams.ts'
import {
  type Attribute,
  decodeAttributes,
  decodeMessages,
  type Message,
  textOf,
  writeMessage,
} from './message.ts'

/** A request: its type (RTM_), the fixed part of that type, and attributes. */
export interface Request {
  readonly type: number
  readonly fixed: Uint8Array
  readonly attributes?: readonly Attribute[]
}

/** Something to be changed. */
export interface Change {
  readonly request: Request
  /** NLM_F_. */
  readonly flags: number
  /** For the sentence of a failure. */
  readonly call: string
  readonly subject: () => string
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
/** No request of ours has more: a dozen attributes of 16 bytes each. */
const LARGEST_REQUEST = 1024
/** A list is read anew when it changed meanwhile, so many times. */
const MOST_DUMPS = 10

/**
 * Requests to the kernel's rtnetlink. The kernel works on a request while it is written, so its answer is there when
 * the write returns and nothing waits on the loop. The socket is opened by the first request and stays open; after a
 * failure of the socket itself the next request opens another.
 */
export class RouteSocket {
  readonly #native: Native
  /** What is being sent; it grows with the largest batch. */
  #datagram = Buffer.alloc(4 * LARGEST_REQUEST)
  #fd: Fd | undefined
  #sequence = 0

  constructor(native: Native) {
    this.#native = native
  }

  /** Has the kernel change something. Throws what it answers, as `<call> <subject>: <ERRNO> (<its words>)`. */
  change(change: Change): void {
    const [failure] = this.changeAll([change])
    if (failure !== undefined) throw failure
  }

  /**
   * Has the kernel change several things in their order, by one datagram: what each failed with. No more at once than
   * the socket's buffer holds acknowledgements for, which are some hundred.
   */
  changeAll(changes: readonly Change[]): readonly (AgentError | undefined)[] {
    const requests = changes.map(({ request, flags }) => ({ request, flags: flags | ACK }))
    const messages = this.#exchange(requests, changes[0]?.call ?? '')
    const answers = new Map(messages.map((message) => [message.sequence, message]))
    const first = this.#sequence - changes.length + 1
    return changes.map(({ call, subject }, index) => failureOf(answers.get(first + index), call, subject))
  }

  /** The messages of a list. */
  list(request: Request, what: string): readonly Message[] {
    for (let attempt = 1; ; attempt++) {
      const messages = this.#exchange([{ request, flags: DUMP }], 'list')
      const failure = failureOf(messages.at(-1), 'list', () => what)
      if (failure !== undefined) throw failure
      const interrupted = messages.some(({ flags }) => (flags & DUMP_INTERRUPTED) !== 0)
      if (!interrupted) return messages.slice(0, -1)
      if (attempt === MOST_DUMPS) throw kernelError('list', `${what}, which kept changing`, 'EINTR')
    }
  }

  /** Sends requests; the answers to all of them. The last request has the sequence number `#sequence` afterwards. */
  #exchange(
    requests: readonly { readonly request: Request; readonly flags: number }[],
    call: string,
  ): Message[] {
    const fd = this.#fd ?? checkErrno('open', 'a netlink socket', this.#native.netlinkRoute())
    this.#fd = fd
    const first = this.#sequence + 1
    const datagram = this.#encode(requests)
    try {
      checkErrno(call, 'by netlink', this.#native.write(fd, datagram))
      return this.#readAll(fd, first, call)
    } catch (error) {
      // Answers may be left in it that must not be taken for those of a later request.
      this.#native.close(fd)
      this.#fd = undefined
      throw error
    }
  }

  #encode(requests: readonly { readonly request: Request; readonly flags: number }[]): Buffer {
    let length = 0
    for (const { request, flags } of requests) {
      const { type, fixed, attributes = [] } = request
      this.#sequence += 1
      const message = { type, flags: REQUEST | flags, sequence: this.#sequence, fixed, attributes }
      if (this.#datagram.length - length < LARGEST_REQUEST)
        this.#datagram = Buffer.concat([this.#datagram], this.#datagram.length * 2)
      length += writeMessage(this.#datagram.subarray(length), message)
    }
    return this.#datagram.subarray(0, length)
  }

  /** Until the acknowledgement of the last change, or the end of a list. */
  #readAll(fd: Fd, first: number, call: string): Message[] {
    const messages: Message[] = []
    for (;;) {
      const datagram = this.#native.read(fd, READ_BYTES)
      if (typeof datagram === 'number') throw kernelError(call, 'by netlink', errnoName(-datagram))
      for (const message of decodeMessages(datagram)) {
        if (message.sequence < first) continue
        messages.push(message)
        const ends = message.type === ERROR || message.type === DONE
        if (ends && message.sequence === this.#sequence) return messages
      }
    }
  }
}

/** What an acknowledgement, or the end of a list, says went wrong. */
function failureOf(
  message: Message | undefined,
  call: string,
  subject: () => string,
): AgentError | undefined {
  if (message === undefined) return kernelError(call, subject(), 'ENODATA')
  const { type, flags, payload } = message
  const errno = payload.length < 4 ? 0 : -payload.readInt32LE(0)
  if (errno === 0) return undefined
  const name = errnoName(errno)
  const words = type === ERROR ? wordsOf(flags, payload) : ''
  return new AgentError('INTERNAL', `${call} ${subject()}: ${name}${words === '' ? '' : ` (${words})`}`, {
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
