import type { ChildProcess } from 'node:child_process'
import { createInterface } from 'node:readline'

export type LogLine = Readonly<Record<string, string>>

export interface AgentLog {
  readonly lines: readonly LogLine[]
  /** Resolves with the first (or `nth`) line, past or future, that has all these fields; rejects when the agent ends. */
  logged(fields: LogLine, nth?: number): Promise<LogLine>
}

/** A line that is not JSON, or that the agent's end has cut, is the message itself. */
export function parseLogLine(text: string): LogLine {
  return /^\{.*\}\s*$/.test(text) ? JSON.parse(text) : { msg: text }
}

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
        // A flood's log has thousands of lines, so each line is examined once.
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
