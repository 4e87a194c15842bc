import { AgentError } from '../../base/errors.ts'
import type { Logger } from '../../base/log.ts'
import { errnoName } from '../errors.ts'
import type { Fd } from '../streams/streams.ts'
import { decodeStoreResult, encodeNamed, RecordKind } from './channel-record.ts'
import type { ChannelWriter } from './channel-writer.ts'
import type { DescriptorStore } from './supervisor.ts'

interface Unanswered {
  readonly command: 'store' | 'remove'
  readonly name: string
  readonly answered: PromiseWithResolvers<void>
}

/** The {@link DescriptorStore} in vminit, which answers commands in order. */
export class VminitStore implements DescriptorStore {
  readonly #writer: Pick<ChannelWriter, 'post' | 'sendDescriptor'>
  readonly #log: Logger
  readonly #inherited: Map<string, Fd>
  readonly #unanswered: Unanswered[] = []
  #gone: AgentError | undefined

  /** `inherited` are the descriptors that previous agents stored. */
  constructor(parts: {
    readonly writer: Pick<ChannelWriter, 'post' | 'sendDescriptor'>
    readonly inherited: ReadonlyMap<string, Fd>
    readonly log: Logger
  }) {
    this.#writer = parts.writer
    this.#log = parts.log
    this.#inherited = new Map(parts.inherited)
  }

  take(name: string): Fd | undefined {
    const fd = this.#inherited.get(name)
    this.#inherited.delete(name)
    return fd
  }

  handOver(name: string, fd: Fd): void {
    this.#inherited.set(name, fd)
  }

  names(): readonly string[] {
    return [...this.#inherited.keys()]
  }

  store(name: string, fd: Fd): Promise<void> {
    // Send first: when this throws, no answer comes.
    this.#writer.sendDescriptor(encodeNamed(RecordKind.STORE, name), fd, `descriptor ${name} in vminit`)
    return this.#answerTo('store', name)
  }

  remove(name: string): Promise<void> {
    this.#writer.post(encodeNamed(RecordKind.UNSTORE, name))
    return this.#answerTo('remove', name)
  }

  answered(record: Buffer): void {
    const { name, errno } = decodeStoreResult(record)
    const next = this.#unanswered.shift()
    if (next === undefined || next.name !== name) {
      this.#log.error('answer of vminit to another command', { name, wanted: next?.name ?? 'none' })
      next?.answered.resolve()
      return
    }
    if (errno === 0 || next.command === 'remove') {
      next.answered.resolve()
      return
    }
    this.#log.error('descriptor not stored', { name, errno: errnoName(errno) })
    next.answered.reject(refusalOf(name, errnoName(errno)))
  }

  /** Rejects all waits. */
  fail(error: AgentError): void {
    this.#gone = error
    for (const { answered } of this.#unanswered.splice(0)) answered.reject(error)
  }

  #answerTo(command: Unanswered['command'], name: string): Promise<void> {
    const answered = Promise.withResolvers<void>()
    answered.promise.catch(() => {})
    if (this.#gone === undefined) this.#unanswered.push({ command, name, answered })
    else answered.reject(this.#gone)
    return answered.promise
  }
}

function refusalOf(name: string, errno: string): AgentError {
  const text = `store descriptor ${name} in vminit: ${errno}`
  if (errno !== 'ENOSPC') return new AgentError('INTERNAL', text)
  return new AgentError('RESOURCE_EXHAUSTED', `${text}: the store is full`)
}
