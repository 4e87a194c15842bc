import { constants } from 'node:os'
import { AgentError } from '../../../../src/base/errors.ts'
import { silentLogger } from '../../../../src/base/log.ts'
import { kernelError } from '../../../../src/os/errors.ts'
import type { Fd, Streams } from '../../../../src/os/streams/streams.ts'
import {
  decodeStoreResult,
  encodeNamed,
  ONLY_REFUSAL,
  RECORD_BYTES,
  RecordKind,
} from '../../../../src/os/supervisor/channel-record.ts'
import { VminitStore } from '../../../../src/os/supervisor/descriptor-store.ts'
import type { DescriptorStore } from '../../../../src/os/supervisor/supervisor.ts'

/** The offset of the result in a record that begins with a name. */
const RESULT_AT = 40

export class FakeDescriptors implements DescriptorStore {
  capacity = Number.POSITIVE_INFINITY
  /** The errno of a store that takes no descriptor. */
  refusal: 'EIO' | 'ENOSPC' | 'EMFILE' | 'EDQUOT' | undefined
  readonly #streams: Pick<Streams, 'duplicate' | 'close'>
  readonly #stored = new Map<string, Fd>()
  #store: VminitStore

  constructor(streams: Pick<Streams, 'duplicate' | 'close'>) {
    this.#streams = streams
    this.#store = this.#connect()
  }

  get stored(): readonly string[] {
    return [...this.#stored.keys()].sort()
  }

  get fds(): readonly Fd[] {
    return [...this.#stored.values()]
  }

  /** Hands the stored descriptors over to a new agent. */
  restart(): void {
    this.#store = this.#connect()
  }

  take(name: string): Fd | undefined {
    return this.#store.take(name)
  }

  handOver(name: string, fd: Fd): void {
    this.#store.handOver(name, fd)
  }

  names(): readonly string[] {
    return this.#store.names()
  }

  store(name: string, fd: Fd): Promise<void> {
    return this.#store.store(name, fd)
  }

  storeAll(descriptors: Readonly<Record<string, Fd>>): void {
    const isFull = this.#stored.size + Object.keys(descriptors).length > this.capacity
    const errno = this.refusal ?? (isFull ? 'ENOSPC' : undefined)
    if (errno === 'ENOSPC') throw new AgentError('RESOURCE_EXHAUSTED', 'store descriptors in vminit: ENOSPC')
    if (errno !== undefined) throw kernelError('store', 'descriptors in vminit', errno)
    this.#store.storeAll(descriptors)
  }

  drop(...names: readonly string[]): void {
    this.#store.drop(...names)
  }

  remove(...names: readonly string[]): Promise<void> {
    return this.#store.remove(...names)
  }

  #connect(): VminitStore {
    const inherited = new Map([...this.#stored].map(([name, fd]) => [name, this.#streams.duplicate(fd)]))
    const answer = (command: Buffer, name: string, errno: number) => {
      if (errno === 0 && command.readInt32LE(RESULT_AT) === ONLY_REFUSAL) return
      const record = encodeNamed(RecordKind.STORE_RESULT, name)
      record.writeInt32LE(errno, RESULT_AT)
      queueMicrotask(() => store.answered(record))
    }
    const store = new VminitStore({
      inherited,
      log: silentLogger(),
      writer: {
        sendDescriptors: (commands, fds) => {
          for (const [index, fd] of fds.entries()) {
            const command = commands.subarray(index * RECORD_BYTES)
            const { name } = decodeStoreResult(command)
            answer(command, name, this.#put(name, fd))
          }
        },
        post: (command) => {
          const { name } = decodeStoreResult(command)
          const fd = this.#stored.get(name)
          this.#stored.delete(name)
          if (fd !== undefined) this.#streams.close(fd)
          answer(command, name, fd === undefined ? constants.errno.ENOENT : 0)
        },
      },
    })
    return store
  }

  #put(name: string, fd: Fd): number {
    if (!/^[a-z0-9-]{1,31}$/.test(name)) throw new Error(`not a name: ${name}`)
    if (this.#stored.has(name)) throw new Error(`stored already: ${name}`)
    if (this.refusal !== undefined) return constants.errno[this.refusal]
    if (this.#stored.size >= this.capacity) return constants.errno.ENOSPC
    this.#stored.set(name, this.#streams.duplicate(fd))
    return 0
  }
}
