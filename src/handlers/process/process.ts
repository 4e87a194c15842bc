import { messageOf } from '../../base/errors.ts'
import type { Logger } from '../../base/log.ts'
import type { ExitRecord, Exits } from '../../os/supervisor/supervisor.ts'
import type { Stdio } from '../stdio/stdio.ts'

/** A process of a container, from its start until its exit status was collected. */
export class ContainerProcess {
  /** Names what is kept for it outside the agent. */
  readonly key: string
  readonly pid: number
  readonly stdio: Stdio
  /** How it ended. Rejects when that will never be known (vminit is gone). */
  readonly exit: Promise<ExitRecord>
  /** Its exit status: an exit code, or 128 plus the signal. Rejects when it will never be known (vminit is gone). */
  readonly ended: Promise<number>
  /** Its exit status, once its output was delivered too. The host is told this one, because it may tear down then. */
  readonly reported: Promise<number>
  /** The start under way or the last one, of a container's first process: its end is told after that. */
  starting: Promise<void> | undefined
  readonly #exits: Pick<Exits, 'forget'>
  #status: number | undefined

  /** Takes over `stdio`. `exit` resolves with the exit record of the process, which `exits` keeps. */
  constructor(options: {
    readonly key: string
    readonly pid: number
    readonly stdio: Stdio
    readonly exit: Promise<ExitRecord>
    readonly exits: Pick<Exits, 'forget'>
    readonly log: Logger
  }) {
    this.key = options.key
    this.pid = options.pid
    this.stdio = options.stdio
    this.#exits = options.exits
    this.exit = options.exit
    this.ended = options.exit.then((record) => {
      this.#status = record.exitCode
      this.stdio.processEnded()
      return record.exitCode
    })
    this.ended.catch((error: unknown) => {
      options.log.error('exit of a process lost', { pid: this.pid, error: messageOf(error) })
      this.stdio.processEnded()
    })
    this.reported = this.#whenDelivered()
    this.reported.catch(() => {})
  }

  /** The exit status; undefined while the process runs. */
  get status(): number | undefined {
    return this.#status
  }

  /** Has vminit drop the exit, which no agent after this one needs. */
  forgetExit(): void {
    this.#exits.forget(this.pid)
  }

  async #whenDelivered(): Promise<number> {
    const status = await this.ended
    await this.stdio.delivered
    return status
  }
}
