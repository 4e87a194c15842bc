import { constants } from 'node:os'

/** A signal to the tool ended the run. */
export class Interrupted extends Error {
  /** 128 + the signal's number, as in a shell. */
  readonly exitStatus: number

  constructor(signal: NodeJS.Signals) {
    super(`ended by ${signal}`)
    this.exitStatus = 128 + constants.signals[signal]
  }
}

const SIGNALS = ['SIGINT', 'SIGTERM', 'SIGHUP'] as const

/** Handles signals to the tool. The first goes to the container once there is one; the next aborts `signal`. */
export class Interruptions {
  readonly #abort = new AbortController()
  #forward: ((signalNumber: number) => void) | undefined

  listen(): void {
    for (const name of SIGNALS) process.on(name, () => this.receive(name))
  }

  get signal(): AbortSignal {
    return this.#abort.signal
  }

  /** Sends the next signal to `forward` instead of ending the run; undefined cancels this. */
  forwardNext(forward: ((signalNumber: number) => void) | undefined): void {
    this.#forward = forward
  }

  receive(name: NodeJS.Signals): void {
    const forward = this.#forward
    this.#forward = undefined
    if (forward === undefined) this.#abort.abort(new Interrupted(name))
    else forward(constants.signals[name])
  }
}
