import { AgentError } from '../../base/errors.ts'
import type { Logger } from '../../base/log.ts'
import { errnoName } from '../errors.ts'
import type { Fd } from '../streams/streams.ts'
import { decodeStoreResult, encodeNamed, RecordKind } from './channel-record.ts'
import type { ChannelWriter } from './channel-writer.ts'
import type { DescriptorStore } from './supervisor.ts'

/** A command to the store that vminit has not answered. */
interface Unanswered {
  readonly command: 'store' | 'remove'
  readonly name: string
  readonly answered: PromiseWithResolvers<void>
}

/** The {@link DescriptorStore} in vminit, which answers each command in its order. */
export class VminitStore implements DescriptorStore {
  readonly #writer: Pick<ChannelWriter, 'send' | 'sendDescriptor'>
  readonly #log: Logger
  readonly #inherited: Map<string, Fd>
  readonly #unanswered: Unanswered[] = []
  /** By the names of the descriptors, until they are removed. */
  readonly #refused = new Map<string, AgentError>()
  #gone: AgentError | undefined

  /** `inherited` are the descriptors that agents before this one have stored. */
  constructor(parts: {
    readonly writer: Pick<ChannelWriter, 'send' | 'sendDescriptor'>
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

  store(name: string, fd: Fd): void {
    this.#writer.sendDescriptor(encodeNamed(RecordKind.STORE, name), fd, `descriptor ${name} in vminit`)
    void this.#expect('store', name)
  }

  async accepted(): Promise<void> {
    await this.#unanswered.findLast(({ command }) => command === 'store')?.answered.promise
    if (this.#gone !== undefined) throw this.#gone
    for (const refusal of this.#refused.values()) throw refusal
  }

  async remove(name: string): Promise<void> {
    this.#refused.delete(name)
    // In this order: the answer to a command that was not sent never comes.
    void this.#writer.send(encodeNamed(RecordKind.UNSTORE, name)).catch(() => {})
    await this.#expect('remove', name)
    if (this.#gone !== undefined) throw this.#gone
  }

  /** Takes vminit's next answer, a STORE_RESULT. */
  answered(record: Buffer): void {
    const { name, errno } = decodeStoreResult(record)
    const next = this.#unanswered.shift()
    if (next === undefined || next.name !== name) {
      this.#log.error('answer of vminit to another command', { name, wanted: next?.name ?? 'none' })
      next?.answered.resolve()
      return
    }
    if (errno !== 0 && next.command === 'store') this.#refuse(name, errno)
    next.answered.resolve()
  }

  /** Ends all waits with `error`: no more answers will come. */
  fail(error: AgentError): void {
    this.#gone = error
    for (const { answered } of this.#unanswered.splice(0)) answered.resolve()
  }

  #expect(command: Unanswered['command'], name: string): Promise<void> {
    const answered = Promise.withResolvers<void>()
    if (this.#gone === undefined) this.#unanswered.push({ command, name, answered })
    else answered.resolve()
    return answered.promise
  }

  #refuse(name: string, errno: number): void {
    const text = `store descriptor ${name} in vminit: ${errnoName(errno)}`
    const isFull = errnoName(errno) === 'ENOSPC'
    this.#refused.set(
      name,
      new AgentError(
        isFull ? 'RESOURCE_EXHAUSTED' : 'INTERNAL',
        isFull ? `${text}: the store is full` : text,
      ),
    )
    this.#log.error('descriptor not stored', { name, errno: errnoName(errno) })
  }
}

/** The store of a program that vminit did not start: it keeps nothing. */
export const withoutStore: DescriptorStore = {
  take: () => undefined,
  handOver: () => {},
  names: () => [],
  store: () => {},
  accepted: async () => {},
  remove: async () => {},
}
