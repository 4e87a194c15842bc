import type { ChildProcess } from 'node:child_process'
import { once } from 'node:events'
import { readdirSync, readFileSync } from 'node:fs'
import { procStatFields } from '../../src/os/process/proc-stat.ts'

/** A process of this machine as /proc/PID/stat shows it. */
export interface ProcessState {
  readonly pid: number
  readonly parent: number
  /** The name of its program, at most 15 characters. */
  readonly name: string
  /** `R`, `S`, `T` (stopped), `Z` (zombie) … */
  readonly state: string
}

/** Every process of this machine. */
export function processes(): readonly ProcessState[] {
  return readdirSync('/proc').flatMap((name) => {
    const state = /^\d+$/.test(name) ? processState(Number(name)) : undefined
    return state === undefined ? [] : [state]
  })
}

/** undefined when there is no such process. */
export function processState(pid: number): ProcessState | undefined {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, 'latin1')
    const name = stat.slice(stat.indexOf('(') + 1, stat.lastIndexOf(')'))
    const [state = '', parent = ''] = procStatFields(stat)
    return { pid, name, state, parent: Number(parent) }
  } catch {
    return undefined
  }
}

/** Sends a signal to a child process and waits for its end. Does nothing when it has ended. */
export async function endChild(child: ChildProcess, signal: NodeJS.Signals = 'SIGTERM'): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return
  const ended = once(child, 'exit')
  child.kill(signal)
  await ended
}
