import { messageOf } from '../../base/errors.ts'
import type { Logger } from '../../base/log.ts'
import type { ExitRecord, Exits } from '../../os/supervisor/supervisor.ts'
import type { Stdio } from '../stdio/stdio.ts'

/** A process of a container, from its start until its exit status was collected. */
export class ContainerProcess {
  /** Names the process's stored descriptors and its record. */
  readonly key: string
  readonly pid: number
  readonly stdio: Stdio
  /** Rejects when vminit is gone. */
  readonly exit: Promise<ExitRecord>
  /** The exit code, or 128 plus the signal. Rejects when vminit is gone. */
  readonly ended: Promise<number>
  /** Like `ended`, but after the output was delivered: a host that knows the status may tear everything down. */
  readonly reported: Promise<number>
  /** The latest start of a container's first process. The event of its end comes after the event of its start. */
  starting: Promise<void> | undefined
  readonly #exits: Pick<Exits, 'forget'>
  #status: number | undefined

  /** Takes over `stdio`. `exits` keeps the exit record until `forgetExit`. */
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

  /** undefined while the process runs. */
  get status(): number | undefined {
    return this.#status
  }

  /** Makes vminit drop the kept exit. */
  forgetExit(): void {
    this.#exits.forget(this.pid)
  }

  async #whenDelivered(): Promise<number> {
    const status = await this.ended
    await this.stdio.delivered
    return status
  }
}
