import { randomBytes } from 'node:crypto'
import { constants } from 'node:os'
import { AgentError } from '../../base/errors.ts'
import type { TtrpcClient } from '../../rpc/ttrpc/client.ts'
import { type Agent, agentOf } from './container-session.ts'
import { addedProcess } from './container-spec.ts'
import { endProcess } from './end-process.ts'
import { signalOnHangup } from './signal-on-hangup.ts'
import { START_FAILURE, startFailureStatus } from './start-failure.ts'
import type { ProcessKey } from './stdio.ts'

const READ_BYTES = 1 << 20
/** Only the beginning of stderr is kept, because it says what went wrong. */
const MOST_ERROR_BYTES = 16 << 10

export function lacksProgram(error: unknown): boolean {
  return error instanceof AgentError && startFailureStatus(error) === START_FAILURE.notFound
}

/** A program that a tool runs for itself in a container, as root. The owner calls `end` or `kill`. */
export class ContainerProgram {
  readonly #agent: Agent
  readonly #key: ProcessKey
  readonly #signal: AbortSignal
  readonly #errors: Promise<string>

  private constructor(agent: Agent, key: ProcessKey, signal: AbortSignal) {
    this.#agent = agent
    this.#key = key
    this.#signal = signal
    this.#errors = this.#readErrors()
    // `end` awaits it, `kill` does not.
    this.#errors.catch(() => {})
  }

  /** `signal` ends every call on the program. The agent kills it when the connection ends. */
  static async start(
    connection: Pick<TtrpcClient, 'call'>,
    containerId: string,
    args: readonly string[],
    signal: AbortSignal,
  ): Promise<ContainerProgram> {
    const key = { containerId, execId: `ctl-${randomBytes(6).toString('hex')}` }
    const user = { uid: 0, gid: 0, additionalGids: [] }
    const process = addedProcess({ args, env: [], cwd: '/', user, terminal: undefined })
    const agent = agentOf(connection)
    await agent.execProcess({ ...key, process }, { signal })
    await signalOnHangup(connection, key, constants.signals.SIGKILL)
    return new ContainerProgram(agent, key, signal)
  }

  async *output(): AsyncGenerator<Uint8Array, void, undefined> {
    yield* this.#read(this.#agent.readStdout)
  }

  /** Writes to stdin. Returns false once the program no longer reads it. */
  async write(data: Uint8Array): Promise<boolean> {
    return await this.#whileItReads(this.#agent.writeStdin({ ...this.#key, data }, { signal: this.#signal }))
  }

  /** Closes stdin and waits for the exit. The caller must have read stdout to its end. */
  async end(): Promise<{ readonly status: number; readonly errors: string }> {
    await this.#whileItReads(this.#agent.closeStdin(this.#key, { signal: this.#signal }))
    // WaitProcess closes the streams, so stderr is read first.
    const errors = await this.#errors
    const { status } = await this.#agent.waitProcess(this.#key, { signal: this.#signal })
    return { status, errors }
  }

  async kill(): Promise<void> {
    await endProcess(this.#agent, this.#key, constants.signals.SIGKILL)
  }

  async #whileItReads(call: Promise<unknown>): Promise<boolean> {
    try {
      await call
      return true
    } catch (error) {
      if (error instanceof AgentError && error.code === 'INTERNAL') return false
      throw error
    }
  }

  async *#read(read: Agent['readStdout']): AsyncGenerator<Uint8Array, void, undefined> {
    for (;;) {
      const { data } = await read({ ...this.#key, len: READ_BYTES }, { signal: this.#signal })
      if (data.length === 0) return
      yield data
    }
  }

  async #readErrors(): Promise<string> {
    let text = Buffer.alloc(0)
    for await (const piece of this.#read(this.#agent.readStderr))
      if (text.length < MOST_ERROR_BYTES) text = Buffer.concat([text, piece])
    return text.toString().trim()
  }
}
