/** The phases of a run in their order, and what the table calls them. */
const PHASES = {
  kernel: "kernel (to the guest's first line)",
  agent: 'agent ready',
  create: 'create',
  start: 'start',
  run: 'run',
  'power-off': 'power off',
} as const

type Phase = keyof typeof PHASES
const ORDER = Object.keys(PHASES) as readonly Phase[]

/** Measures the phases of one run, each from the end of the one before. */
export class Timings {
  readonly #clock: () => number
  readonly #began: number
  readonly #ends = new Map<Phase, number>()

  /** `clock` gives milliseconds; the first phase begins now. */
  constructor(clock: () => number) {
    this.#clock = clock
    this.#began = clock()
  }

  /** The phase ends now. Only the first time counts. */
  end(phase: Phase): void {
    if (!this.#ends.has(phase)) this.#ends.set(phase, this.#clock())
  }

  /** Milliseconds of each phase that ended, and of all together. */
  get milliseconds(): Readonly<Record<string, number>> {
    let before = this.#began
    const phases: [string, number][] = []
    for (const phase of ORDER) {
      const end = this.#ends.get(phase)
      if (end === undefined) continue
      phases.push([phase, Math.max(0, Math.round(end - before))])
      before = Math.max(before, end)
    }
    return { ...Object.fromEntries(phases), total: Math.round(before - this.#began) }
  }

  /** A table for people, a line for each phase. */
  table(): string {
    const names: Readonly<Record<string, string>> = { ...PHASES, total: 'total' }
    const rows = Object.entries(this.milliseconds).map(([phase, ms]) => [names[phase] ?? phase, ms] as const)
    const width = Math.max(...rows.map(([name]) => name.length))
    return rows.map(([name, ms]) => `  ${name.padEnd(width)}  ${String(ms).padStart(7)} ms\n`).join('')
  }

  /** One line of JSON: milliseconds by phase. */
  json(): string {
    return `${JSON.stringify(this.milliseconds)}\n`
  }
}
