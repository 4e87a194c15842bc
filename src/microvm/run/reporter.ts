import type { Writable } from 'node:stream'

export interface Reporter {
  progress(line: string): void
  /** Shows on a terminal that something is waited for, until the function that it returns is called. */
  wait(line: string): () => void
  detail(line: string): void
  /** Shows a line of the guest's console, with --verbose only. */
  console(line: string): void
  /** Shows why the run failed, with the console's last lines unless they were shown already. */
  failure(message: string, consoleLines: readonly string[]): void
}

/** The cursor goes to the start of the line, and the line away (ECMA-48, EL). */
const ERASE_LINE = '\r\x1b[K'

export function reporterOn(
  stderr: Writable & { readonly isTTY?: boolean },
  { tty, verbose }: { readonly tty: boolean; readonly verbose: boolean },
): Reporter {
  // While the container has the terminal, the terminal is raw and adds no \r.
  const end = tty && stderr.isTTY === true ? '\r\n' : '\n'
  let isWaiting = false
  const clear = () => {
    if (isWaiting) stderr.write(ERASE_LINE)
    isWaiting = false
  }
  const put = (line: string) => {
    clear()
    stderr.write(line)
  }
  const write = (line: string) => put(`microvm: ${line}${end}`)
  const show = (line: string) => put(`console: ${line}${end}`)
  return {
    progress: write,
    wait(line) {
      if (stderr.isTTY !== true || verbose) return () => {}
      isWaiting = true
      stderr.write(`microvm: ${line} …`)
      return clear
    },
    detail: (line) => verbose && write(line),
    console: (line) => verbose && show(line),
    failure(message, consoleLines) {
      if (!verbose) for (const line of consoleLines) show(line)
      write(message)
    },
  }
}

/** The phases of a run in their order, with their names in the table. */
const PHASES = {
  template: 'template ready',
  clone: 'clone ready',
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

  /** Begins the first phase. `clock` returns milliseconds. */
  constructor(clock: () => number) {
    this.#clock = clock
    this.#began = clock()
  }

  /** Ends the phase now. Only the first call for a phase counts. */
  end(phase: Phase): void {
    if (!this.#ends.has(phase)) this.#ends.set(phase, this.#clock())
  }

  /** Milliseconds of each phase that has ended, and the total. */
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

  /** A table with one line for each phase. */
  table(): string {
    const names: Readonly<Record<string, string>> = { ...PHASES, total: 'total' }
    const rows = Object.entries(this.milliseconds).map(([phase, ms]) => [names[phase] ?? phase, ms] as const)
    const width = Math.max(...rows.map(([name]) => name.length))
    return rows.map(([name, ms]) => `  ${name.padEnd(width)}  ${String(ms).padStart(7)} ms\n`).join('')
  }

  json(): string {
    return `${JSON.stringify(this.milliseconds)}\n`
  }
}
