import { AgentError } from '../../base/errors.ts'
import type { Logger } from '../../base/log.ts'
import { errnoName } from '../errors.ts'
import type { Fd } from '../streams/streams.ts'
import { decodeStoreResult, encodeNamed, ONLY_REFUSAL, RecordKind } from './channel-record.ts'
import type { ChannelWriter } from './channel-writer.ts'
import type { DescriptorStore } from './supervisor.ts'

/** Of vminit's store (native/init/kept/store.h). */
const CAPACITY = 8192

interface Unanswered {
  readonly command: 'store' | 'remove'
  readonly name: string
  readonly answered: PromiseWithResolvers<void>
}

/** The {@link DescriptorStore} in vminit, which answers commands in order. */
export class VminitStore implements DescriptorStore {
  readonly #writer: Pick<ChannelWriter, 'post' | 'sendDescriptors'>
  readonly #log: Logger
  readonly #inherited: Map<string, Fd>
  /** What vminit has once it has carried out all commands. */
  readonly #names: Set<string>
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
    this.#names = new Set(parts.inherited.keys())
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
    this.#writer.sendDescriptors(encodeNamed(RecordKind.STORE, name), [fd], `descriptor ${name} in vminit`)
    this.#names.add(name)
    return this.#answerTo('store', name)
  }

  storeAll(descriptors: Readonly<Record<string, Fd>>): void {
    const names = Object.keys(descriptors)
    const all = names.join(' ')
    if (this.#names.size + names.length > CAPACITY) throw refusalOf(all, 'ENOSPC')
    const commands = names.map((name) => encodeNamed(RecordKind.STORE, name, ONLY_REFUSAL))
    const fds = Object.values(descriptors)
    this.#writer.sendDescriptors(Buffer.concat(commands), fds, `descriptors ${all} in vminit`)
    for (const name of names) this.#names.add(name)
  }

  async remove(...names: readonly string[]): Promise<void> {
    await Promise.all(names.map((name) => this.#remove(name)))
  }

  drop(...names: readonly string[]): void {
    for (const name of names) {
      this.#names.delete(name)
      this.#writer.post(encodeNamed(RecordKind.UNSTORE, name, ONLY_REFUSAL))
    }
  }

  #remove(name: string): Promise<void> {
    this.#names.delete(name)
    this.#writer.post(encodeNamed(RecordKind.UNSTORE, name))
    return this.#answerTo('remove', name)
  }

  answered(record: Buffer): void {
    const { name, errno } = decodeStoreResult(record)
    const isAwaited = this.#unanswered[0]?.name === name
    const next = isAwaited ? this.#unanswered.shift() : undefined
    if (next !== undefined && (errno === 0 || next.command === 'remove')) {
      next.answered.resolve()
      return
    }
    this.#names.delete(name)
    this.#log.error('descriptor not stored', { name, errno: errno === 0 ? 'none' : errnoName(errno) })
    next?.answered.reject(refusalOf(name, errnoName(errno)))
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
