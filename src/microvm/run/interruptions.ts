import { constants } from 'node:os'

/** The run was ended by a signal to the tool itself. */
export class Interrupted extends Error {
  /** As a shell reports it. */
  readonly exitStatus: number

  constructor(signal: NodeJS.Signals) {
    super(`ended by ${signal}`)
    this.exitStatus = 128 + constants.signals[signal]
  }
}

const SIGNALS = ['SIGINT', 'SIGTERM', 'SIGHUP'] as const

/**
 * SIGINT, SIGTERM and SIGHUP of the tool: the first goes to the container once there is one, the next ends the run
 * by aborting `signal` with {@link Interrupted}.
 */
export class Interruptions {
  readonly #abort = new AbortController()
  #forward: ((signalNumber: number) => void) | undefined

  /** Begins to listen to the process's signals. */
  listen(): void {
    for (const name of SIGNALS) process.on(name, () => this.receive(name))
  }

  get signal(): AbortSignal {
    return this.#abort.signal
  }

  /** The next signal goes to `forward` instead of ending the run; undefined takes that back. */
  forwardNext(forward: ((signalNumber: number) => void) | undefined): void {
    this.#forward = forward
  }

  /** What a signal does. */
  receive(name: NodeJS.Signals): void {
    const forward = this.#forward
    this.#forward = undefined
    if (forward === undefined) this.#abort.abort(new Interrupted(name))
    else forward(constants.signals[name])
  }
}
