import { AgentError } from '../../base/errors.ts'
import type { Logger } from '../../base/log.ts'
import { errnoName } from '../errors.ts'
import type { Fd } from '../streams/streams.ts'
import { decodeStoreResult, encodeNamed, RecordKind } from './channel-record.ts'
import type { ChannelWriter } from './channel-writer.ts'
import type { DescriptorStore } from './supervisor.ts'

interface Unanswered {
  readonly command: 'store' | 'remove'
  /** Those that vminit has not answered yet. */
  readonly names: string[]
  refusal: AgentError | undefined
  readonly answered: PromiseWithResolvers<void>
}

/** The {@link DescriptorStore} in vminit, which answers commands in order. */
export class VminitStore implements DescriptorStore {
  readonly #writer: Pick<ChannelWriter, 'post' | 'sendDescriptors'>
  readonly #log: Logger
  readonly #inherited: Map<string, Fd>
  readonly #unanswered: Unanswered[] = []
  #gone: AgentError | undefined

  /** `inherited` are the descriptors that previous agents stored. */
  constructor(parts: {
    readonly writer: Pick<ChannelWriter, 'post' | 'sendDescriptors'>
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
    return this.storeAll({ [name]: fd })
  }

  storeAll(descriptors: Readonly<Record<string, Fd>>): Promise<void> {
    const names = Object.keys(descriptors)
    const commands = Buffer.concat(names.map((name) => encodeNamed(RecordKind.STORE, name)))
    // Send first: when this throws, no answer comes.
    this.#writer.sendDescriptors(
      commands,
      Object.values(descriptors),
      `descriptor ${names.join(' ')} in vminit`,
    )
    return this.#answerTo('store', names)
  }

  remove(name: string): Promise<void> {
    this.#writer.post(encodeNamed(RecordKind.UNSTORE, name))
    return this.#answerTo('remove', [name])
  }

  answered(record: Buffer): void {
    const { name, errno } = decodeStoreResult(record)
    const [next] = this.#unanswered
    const wanted = next?.names.shift()
    if (wanted !== name)
      this.#log.error('answer of vminit to another command', { name, wanted: wanted ?? 'none' })
    else if (errno !== 0 && next?.command === 'store') {
      this.#log.error('descriptor not stored', { name, errno: errnoName(errno) })
      next.refusal ??= refusalOf(name, errnoName(errno))
    }
    if (next === undefined || next.names.length > 0) return
    this.#unanswered.shift()
    if (next.refusal === undefined) next.answered.resolve()
    else next.answered.reject(next.refusal)
  }

  /** Rejects all waits. */
  fail(error: AgentError): void {
    this.#gone = error
    for (const { answered } of this.#unanswered.splice(0)) answered.reject(error)
  }

  #answerTo(command: Unanswered['command'], names: string[]): Promise<void> {
    const answered = Promise.withResolvers<void>()
    answered.promise.catch(() => {})
    if (this.#gone === undefined) this.#unanswered.push({ command, names, refusal: undefined, answered })
    else answered.reject(this.#gone)
    return answered.promise
  }
}

function refusalOf(name: string, errno: string): AgentError {
  const text = `store descriptor ${name} in vminit: ${errno}`
  if (errno !== 'ENOSPC') return new AgentError('INTERNAL', text)
  return new AgentError('RESOURCE_EXHAUSTED', `${text}: the store is full`)
}
