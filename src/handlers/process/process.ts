import { messageOf } from '../../base/errors.ts'
import type { Logger } from '../../base/log.ts'
import type { ExitRecord } from '../../os/supervisor/supervisor.ts'
import type { Stdio } from '../stdio/stdio.ts'

/** A process of a container, from its start until its status was collected. */
export class ContainerProcess {
  readonly pid: number
  readonly stdio: Stdio
  /** Its status, an exit code or 128 plus the signal. Rejects when it will never be known (vminit is gone). */
  readonly ended: Promise<number>
  /** Its status, once what it wrote was delivered too: what the host is told, who may then tear everything down. */
  readonly reported: Promise<number>
  #status: number | undefined

  /** Takes `stdio` over. `exit` is the process's exit record to come. */
  constructor(options: {
    readonly pid: number
    readonly stdio: Stdio
    readonly exit: Promise<ExitRecord>
    readonly log: Logger
  }) {
    this.pid = options.pid
    this.stdio = options.stdio
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

  /** The status, or undefined while it runs. */
  get status(): number | undefined {
    return this.#status
  }

  async #whenDelivered(): Promise<number> {
    const status = await this.ended
    await this.stdio.delivered
    return status
  }
}
