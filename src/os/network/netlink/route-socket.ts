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

/** `type` is an RTM_ constant, `fixed` the structure of that type. */
export interface Request {
  readonly type: number
  readonly fixed: Uint8Array
  readonly attributes?: readonly Attribute[]
}

export interface Change {
  readonly request: Request
  /** NLM_F_. */
  readonly flags: number
  /** The call and the object of the error text. */
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

/** The kernel sends no larger datagram. */
const READ_BYTES = 65536
/** The largest request has a dozen attributes of 16 bytes. */
const LARGEST_REQUEST = 1024
/** The most reads of a list that changes during the read. */
const MOST_DUMPS = 10

/** The kernel handles a request during its write. After a failure of the socket, the next request opens a new one. */
export class RouteSocket {
  readonly #native: Native
  #datagram = Buffer.alloc(4 * LARGEST_REQUEST)
  #fd: Fd | undefined
  #sequence = 0

  constructor(native: Native) {
    this.#native = native
  }

  /** Throws `<call> <subject>: <ERRNO> (<text of the kernel>)`. */
  change(change: Change): void {
    const [failure] = this.changeAll([change])
    if (failure !== undefined) throw failure
  }

  /** Makes changes in order by one datagram: at most some hundred, whose acknowledgements the socket can hold. */
  changeAll(changes: readonly Change[]): readonly (AgentError | undefined)[] {
    const requests = changes.map(({ request, flags }) => ({ request, flags: flags | ACK }))
    const messages = this.#exchange(requests, changes[0]?.call ?? '')
    const answers = new Map(messages.map((message) => [message.sequence, message]))
    const first = this.#sequence - changes.length + 1
    return changes.map(({ call, subject }, index) => failureOf(answers.get(first + index), call, subject))
  }

  /** Throws EINTR when the list keeps changing. */
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

  /** Returns all answers. `#sequence` is then the sequence number of the last request. */
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
      // The socket may still hold answers, which a later request must not take for its own.
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

  #readAll(fd: Fd, first: number, call: string): Message[] {
    const messages: Message[] = []
    for (;;) {
      const datagram = this.#native.read(fd, READ_BYTES)
      if (typeof datagram === 'number') throw kernelError(call, 'by netlink', errnoName(-datagram))
      for (const message of intact(call, 'by netlink', () => decodeMessages(datagram))) {
        if (message.sequence < first) continue
        messages.push(message)
        const ends = message.type === ERROR || message.type === DONE
        if (ends && message.sequence === this.#sequence) return messages
      }
    }
  }
}

/** Throws EBADMSG when `read` finds an answer that is cut off or has impossible numbers. */
export function intact<T>(call: string, subject: string, read: () => T): T {
  try {
    return read()
  } catch (error) {
    throw error instanceof RangeError ? kernelError(call, subject, 'EBADMSG', error) : error
  }
}

function failureOf(
  message: Message | undefined,
  call: string,
  subject: () => string,
): AgentError | undefined {
  if (message === undefined) return kernelError(call, subject(), 'ENODATA')
  return intact(call, subject(), () => failureIn(message, call, subject))
}

function failureIn(
  { type, flags, payload }: Message,
  call: string,
  subject: () => string,
): AgentError | undefined {
  const errno = payload.length < 4 ? 0 : -payload.readInt32LE(0)
  if (errno === 0) return undefined
  const name = errnoName(errno)
  const words = type === ERROR ? wordsOf(flags, payload) : ''
  return new AgentError('INTERNAL', `${call} ${subject()}: ${name}${words === '' ? '' : ` (${words})`}`, {
    errno: name,
  })
}

/** The attributes follow the request's header if the answer is capped (CAP_ACK), otherwise the whole request. */
function wordsOf(flags: number, payload: Buffer): string {
  if ((flags & ACK_TLVS) === 0) return ''
  const requestBytes = (flags & CAPPED) === 0 ? payload.readUInt32LE(4) : 16
  const words = decodeAttributes(payload.subarray(4 + requestBytes)).get(KERNEL_WORDS)
  return words === undefined ? '' : textOf(words).replace(/\.$/, '')
}
