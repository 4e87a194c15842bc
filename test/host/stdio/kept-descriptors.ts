import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { join } from 'node:path'
import { projectRoot } from '../../../src/build/project.ts'
import { unwrap } from '../../../src/os/errors.ts'
import type { Native } from '../../../src/os/native.ts'
import type { Fd, Streams } from '../../../src/os/streams/streams.ts'
import { addonFolder } from '../../support/os/real-native.ts'
import { temporaryFolder } from '../../support/temporary-folder.ts'

const PROGRAM = join(projectRoot, 'test/host/stdio/mortal-stdio.ts')
const MESSAGE_BYTES = 65_536

/** Starts agents of `mortal-stdio.ts` one after the other, and keeps their descriptors in place of vminit. */
export class KeptDescriptors {
  readonly kept = new Map<string, Fd>()
  readonly #native: Native
  readonly #streams: Streams
  readonly #environment = { ...process.env, NODE_COMPILE_CACHE: temporaryFolder() }
  #child: ChildProcess | undefined
  #channel: Fd | undefined

  constructor(native: Native, streams: Streams) {
    this.#native = native
    this.#streams = streams
  }

  async start(terminals: string, others: string): Promise<void> {
    const [own, agents] = unwrap('open', 'a message pair', this.#native.messagePair())
    this.#native.setNonBlocking(own, true)
    const names = [...this.kept.keys()]
    const list = names.map((name, index) => `${name}=${index + 4}`)
    const stdio = ['ignore', 'inherit', 'inherit', agents, ...this.kept.values()] as const
    const words = [PROGRAM, await addonFolder(), '3', terminals, others, ...list]
    this.#child = spawn(process.execPath, ['--no-warnings', ...words], {
      stdio: [...stdio],
      env: this.#environment,
    })
    this.#native.close(agents)
    this.#channel = own
  }

  send(message: string, fd?: Fd): void {
    if (this.#channel !== undefined)
      this.#native.sendMessage(this.#channel, Buffer.from(message, 'latin1'), fd)
  }

  kill(): void {
    this.#child?.kill('SIGKILL')
  }

  /** The next message that is not for the store; undefined when the agent is dead and has sent no more. */
  async next(): Promise<string | undefined> {
    const channel = this.#channel
    if (channel === undefined) return undefined
    for (;;) {
      await this.#streams.readable(channel)
      const message = this.#native.recvMessage(channel, MESSAGE_BYTES)
      if (typeof message === 'number') continue
      const text = message.data.toString('latin1')
      if (text === '') return this.#ended(channel)
      const [what, name = ''] = text.split(' ', 2)
      const [fd] = message.fds
      if (what === 'store' && fd !== undefined) this.kept.set(name, fd)
      else if (what === 'remove') this.#remove(name)
      else return text
    }
  }

  #remove(name: string): void {
    const fd = this.kept.get(name)
    if (fd !== undefined) this.#native.close(fd)
    this.kept.delete(name)
  }

  async #ended(channel: Fd): Promise<undefined> {
    this.#streams.close(channel)
    this.#channel = undefined
    const child = this.#child
    if (child !== undefined && child.exitCode === null && child.signalCode === null) await once(child, 'exit')
    return undefined
  }
}
