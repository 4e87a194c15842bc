import { readdirSync, readFileSync } from 'node:fs'
import { setTimeout as sleep } from 'node:timers/promises'

/** A process as /proc/PID/stat shows it. */
export interface ProcessState {
  readonly pid: number
  readonly parent: number
  /** `R`, `S`, `T` (stopped), `Z` (zombie) … */
  readonly state: string
}

/** Every process there is. */
export function processes(): readonly ProcessState[] {
  return readdirSync('/proc').flatMap((name) => {
    const state = /^\d+$/.test(name) ? processState(Number(name)) : undefined
    return state === undefined ? [] : [state]
  })
}

/** undefined when there is no such process. */
export function processState(pid: number): ProcessState | undefined {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, 'utf8')
    // The name in parentheses may hold spaces and parentheses of its own.
    const [state = '', parent = ''] = stat.slice(stat.lastIndexOf(')') + 2).split(' ')
    return { pid, state, parent: Number(parent) }
  } catch {
    return undefined
  }
}

/** Waits for a condition on /proc, which announces nothing and so has to be looked at again. The test's own limit ends it. */
export async function untilProcesses(condition: () => boolean): Promise<void> {
  while (!condition()) await sleep(5)
}
