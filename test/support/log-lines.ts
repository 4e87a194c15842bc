import type { ChildProcess } from 'node:child_process'
import { createInterface } from 'node:readline'

/** Fields of a log line; `msg` is its message. */
export type LogLine = Readonly<Record<string, string>>

/** The log of an agent that is a child process. */
export interface AgentLog {
  /** The lines so far. */
  readonly lines: readonly LogLine[]
  /** Resolves with the first (or `nth`) line, past or future, that has all these fields; rejects when the agent ends. */
  logged(fields: LogLine, nth?: number): Promise<LogLine>
}

/** Parses a line of an agent's output. A line that is not JSON, or cut by the agent's end, is the message itself. */
export function parseLogLine(text: string): LogLine {
  return /^\{.*\}\s*$/.test(text) ? JSON.parse(text) : { msg: text }
}

/** Reads the log that an agent writes to its standard output, to its end. */
export function readLog(child: ChildProcess): AgentLog {
  const lines: LogLine[] = []
  const waiters = new Set<{ look: (line: LogLine) => void; reject: (error: Error) => void }>()
  if (child.stdout === null) throw new Error('the agent has no stdout')
  createInterface(child.stdout).on('line', (text) => {
    const line = parseLogLine(text)
    lines.push(line)
    for (const waiter of waiters) waiter.look(line)
  })
  child.once('exit', (code, signal) => {
    for (const waiter of waiters)
      waiter.reject(new Error(`the agent ended with ${code ?? signal}: ${JSON.stringify(lines)}`))
  })
  const logged = (fields: LogLine, nth = 1) =>
    new Promise<LogLine>((resolve, reject) => {
      const wanted = Object.entries(fields)
      let left = nth
      const waiter = {
        // A flood's log has thousands of lines: each is looked at once.
        look: (line: LogLine) => {
          if (wanted.every(([key, value]) => line[key] === value)) left -= 1
          if (left > 0) return
          waiters.delete(waiter)
          resolve(line)
        },
        reject,
      }
      waiters.add(waiter)
      for (const line of lines) if (left > 0) waiter.look(line)
    })
  return { lines, logged }
}
