import { constants as openFlags } from 'node:fs'
import { constants } from 'node:os'
import { AgentError } from '../../base/errors.ts'
import { checkErrno, errnoName, kernelError } from '../errors.ts'
import type { Native } from '../native.ts'
import { AT_FDCWD, RESOLVE_NO_SYMLINKS } from '../open-flags.ts'
import type { Fd } from '../streams/streams.ts'
import { decodeStoreResult, encodeCommand, encodeNamed, RecordKind } from './channel-record.ts'
import type { ChannelWriter } from './channel-writer.ts'
import type { Freezer, Thawed } from './supervisor.ts'

const { ECANCELED } = constants.errno
const { O_DIRECTORY, O_NONBLOCK, O_RDONLY, O_WRONLY } = openFlags

/** The name under which vminit answers ARM_THAW, and tells that nothing is frozen. */
const NO_NAME = ''

/** The {@link Freezer} in vminit (docs/vminit.md). */
export class VminitFreezer implements Freezer {
  readonly #native: Pick<Native, 'openAt2' | 'close'>
  readonly #writer: Pick<ChannelWriter, 'send' | 'post' | 'sendDescriptors'>
  readonly #mountOf: (fd: Fd) => number
  /** Commands by the name in their answer. */
  readonly #unanswered = new Map<string, PromiseWithResolvers<number>>()
  /** File systems that are frozen, or are to be. */
  readonly #frozen = new Set<string>()
  #failed: { readonly name: string; readonly errno: string }[] = []
  /** Called after each thaw. */
  #thawed: (everything: boolean) => void = () => {}
  #onThawed: () => void = () => {}

  /** `mountOf` returns the id of the mount that an open file is in. */
  constructor(parts: {
    readonly native: Pick<Native, 'openAt2' | 'close'>
    readonly writer: Pick<ChannelWriter, 'send' | 'post' | 'sendDescriptors'>
    readonly mountOf: (fd: Fd) => number
  }) {
    this.#native = parts.native
    this.#writer = parts.writer
    this.#mountOf = parts.mountOf
  }

  onThawed(thawed: () => void): void {
    this.#onThawed = thawed
  }

  async holdFileSystem(
    name: string,
    mount: { readonly id: number; readonly mountPoint: string },
  ): Promise<void> {
    // A fifo may be mounted at the path.
    const flags = O_RDONLY | O_DIRECTORY | O_NONBLOCK
    await this.#hold(RecordKind.HOLD_FILE_SYSTEM, name, mount.mountPoint, flags, (fd) => {
      if (this.#mountOf(fd) !== mount.id) throw kernelError('hold', mount.mountPoint, 'ENOENT')
    })
  }

  async holdCgroup(name: string, freezeFile: string): Promise<void> {
    await this.#hold(RecordKind.HOLD_CGROUP, name, freezeFile, O_WRONLY, () => {})
  }

  async arm(boundMs: number): Promise<void> {
    const command = encodeCommand(RecordKind.ARM_THAW, { sequence: BigInt(boundMs) })
    await this.#answer(NO_NAME, 'arm the thaw in', 'vminit', () => this.#writer.post(command))
  }

  async freeze(name: string): Promise<void> {
    this.#frozen.add(name)
    await this.freezeCgroup(name)
  }

  async freezeCgroup(name: string): Promise<void> {
    const command = encodeNamed(RecordKind.FREEZE, name)
    await this.#answer(name, 'freeze', name, () => this.#writer.post(command))
  }

  async thaw(what: 'all' | 'file systems', signal: AbortSignal): Promise<Thawed> {
    const done = Promise.withResolvers<void>()
    const isDone = (everything: boolean) => everything || (what === 'file systems' && this.#frozen.size === 0)
    this.#thawed = (everything) => {
      if (isDone(everything)) done.resolve()
    }
    await this.#writer.send(encodeCommand(RecordKind.THAW, { pid: what === 'all' ? 0 : 1 }))
    if (isDone(false)) done.resolve()
    const late = () => done.resolve()
    signal.addEventListener('abort', late, { once: true })
    if (signal.aborted) late()
    await done.promise
    signal.removeEventListener('abort', late)
    return { late: [...this.#frozen], failed: this.#failed.splice(0) }
  }

  /** Takes a FREEZE_RESULT. */
  answered(record: Buffer): void {
    const { name, errno } = decodeStoreResult(record)
    this.#unanswered.get(name)?.resolve(errno)
    this.#unanswered.delete(name)
    if (errno !== 0) this.#frozen.delete(name)
  }

  /** Takes a THAWED. */
  thawed(record: Buffer): void {
    const { name, errno } = decodeStoreResult(record)
    this.#cancel(name)
    this.#frozen.delete(name)
    if (errno !== 0) this.#failed.push({ name, errno: errnoName(errno) })
    const everything = name === NO_NAME
    if (everything) {
      for (const each of [...this.#unanswered.keys()]) this.#cancel(each)
      this.#frozen.clear()
    }
    this.#thawed(everything)
    if (everything) this.#onThawed()
  }

  /** Ends all waits: vminit is gone. */
  fail(error: AgentError): void {
    for (const { reject } of this.#unanswered.values()) reject(error)
    this.#unanswered.clear()
    this.#thawed(true)
  }

  #cancel(name: string): void {
    this.#unanswered.get(name)?.resolve(ECANCELED)
    this.#unanswered.delete(name)
  }

  async #hold(
    kind: number,
    name: string,
    path: string,
    flags: number,
    check: (fd: Fd) => void,
  ): Promise<void> {
    const how = { flags, mode: 0, resolve: RESOLVE_NO_SYMLINKS }
    const fd = checkErrno('open', path, this.#native.openAt2(AT_FDCWD, path, how))
    try {
      check(fd)
      const send = () => this.#writer.sendDescriptors(encodeNamed(kind, name), [fd], `${path} in vminit`)
      await this.#answer(name, 'hold', path, send)
    } finally {
      this.#native.close(fd)
    }
  }

  /** Waits for the answer to a command. Throws the kernel's error in it. */
  async #answer(name: string, call: string, subject: string, send: () => void): Promise<void> {
    if (this.#unanswered.has(name))
      throw new AgentError('INTERNAL', `${call} ${subject}: vminit has not answered the command before`)
    const answer = Promise.withResolvers<number>()
    this.#unanswered.set(name, answer)
    try {
      send()
    } catch (error) {
      this.#unanswered.delete(name)
      throw error
    }
    checkErrno(call, subject, -(await answer.promise))
  }
}
