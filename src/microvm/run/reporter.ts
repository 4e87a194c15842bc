import type { Writable } from 'node:stream'

/** What the tool itself says, all of it on stderr. */
export interface Reporter {
  /** A step that takes time, always shown. */
  progress(line: string): void
  /** A detail, shown with --verbose. */
  detail(line: string): void
  /** A line of the guest's console, shown with --verbose. */
  console(line: string): void
  /** Why the run failed, with the console's last lines unless they were shown already. */
  failure(message: string, consoleLines: readonly string[]): void
}

export function reporterOn(stderr: Writable, verbose: boolean): Reporter {
  const say = (line: string) => stderr.write(`microvm: ${line}\n`)
  const show = (line: string) => stderr.write(`console: ${line}\n`)
  return {
    progress: say,
    detail: (line) => verbose && say(line),
    console: (line) => verbose && show(line),
    failure(message, consoleLines) {
      if (!verbose) for (const line of consoleLines) show(line)
      say(message)
    },
  }
}
