import type { StatusCodeName } from '../../base/errors.ts'
import { type Distribution, Histogram } from '../../base/histogram.ts'

/** The answered calls of one method. */
export interface MethodFigures {
  /** Full name, such as `grpc.Health/Check`. */
  readonly rpc: string
  /** Seconds from arrival to answer. */
  readonly seconds: Distribution
  /** The failed ones by their codes. */
  readonly failures: ReadonlyMap<StatusCodeName, number>
}

/** Few, because each method that was called has a series for each. */
const CALL_BOUNDS = [0.001, 0.005, 0.025, 0.1, 0.5, 2.5, 10, 60, 300]
const TURN_BOUNDS = [0.001, 0.005, 0.025, 0.1, 0.5, 2.5, 10]

/** Counts calls, and how long the event loop lets them wait. */
export class CallFigures {
  readonly #methods = new Map<
    string,
    { readonly seconds: Histogram; readonly failures: Map<StatusCodeName, number> }
  >()
  readonly #turns = new Histogram(TURN_BOUNDS)
  /** A turn of the event loop has ended, so long after the first call in it began. */
  turnEnded(ms: number): void {
    this.#turns.observe(ms / 1000)
  }

  /** `code` is undefined for a call that has succeeded. */
  answered(rpc: string, ms: number, code: StatusCodeName | undefined): void {
    let figures = this.#methods.get(rpc)
    if (figures === undefined) {
      figures = { seconds: new Histogram(CALL_BOUNDS), failures: new Map() }
      this.#methods.set(rpc, figures)
    }
    figures.seconds.observe(ms / 1000)
    if (code !== undefined) figures.failures.set(code, (figures.failures.get(code) ?? 0) + 1)
  }

  /** The methods that were called. */
  methods(): readonly MethodFigures[] {
    return [...this.#methods].map(([rpc, { seconds, failures }]) => ({
      rpc,
      seconds: seconds.distribution,
      failures: new Map(failures),
    }))
  }

  /** Seconds that the rest of a turn of the loop took in which a call began. */
  get turns(): Distribution {
    return this.#turns.distribution
  }
}
