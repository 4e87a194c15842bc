import type { ChildProcess, ChildProcessByStdio } from 'node:child_process'
import { once } from 'node:events'
import { readdirSync, readFileSync, readlinkSync } from 'node:fs'
import type { Readable } from 'node:stream'
import { errnoOf } from '../../src/base/errors.ts'
import { projectRoot } from '../../src/build/project.ts'
import { procStatFields } from '../../src/os/process/proc-stat.ts'

export interface ProcessState {
  readonly pid: number
  readonly parent: number
  /** At most 15 characters. */
  readonly name: string
  /** `R`, `S`, `T` (stopped), `Z` (zombie) … */
  readonly state: string
}

export function processes(): readonly ProcessState[] {
  return readdirSync('/proc').flatMap((name) => {
    const state = /^\d+$/.test(name) ? processState(Number(name)) : undefined
    return state === undefined ? [] : [state]
  })
}

/** Returns undefined when there is no such process. */
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

export interface FoundProcess {
  readonly pid: number
  /** Of its command line. */
  readonly words: string
}

/** The other processes that work in the folder, or name a path below it. */
export function processesIn(folder: string): readonly FoundProcess[] {
  return readdirSync('/proc').flatMap((name) => {
    if (!/^\d+$/.test(name) || name === `${process.pid}`) return []
    const words = textOr(() => readFileSync(`/proc/${name}/cmdline`, 'utf8')).replaceAll('\0', ' ')
    const workingFolder = textOr(() => readlinkSync(`/proc/${name}/cwd`))
    const isInside = words.includes(`${folder}/`) || workingFolder.startsWith(`${folder}/`)
    return isInside ? [{ pid: Number(name), words }] : []
  })
}

/** Empty for what is gone meanwhile. */
function textOr(read: () => string): string {
  try {
    return read()
  } catch {
    return ''
  }
}

/** Waits until a child process has logged the text to stderr; what it logs later is dropped. Rejects with its log when it ends. */
export async function hasLogged(
  child: ChildProcessByStdio<null, null, Readable>,
  text: string,
  name: string,
): Promise<void> {
  let log = ''
  for await (const chunk of child.stderr.iterator({ destroyOnReturn: false })) {
    log += chunk
    if (!log.includes(text)) continue
    // `resume` has no effect here: the end of the iterator stops the stream unless it has a listener.
    child.stderr.on('data', () => {})
    return
  }
  throw new Error(`${name} did not start:\n${log}`)
}

/** Sends a signal to a child process and waits for its end, unless it has ended. */
export async function endChild(child: ChildProcess, signal: NodeJS.Signals = 'SIGTERM'): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return
  const ended = once(child, 'exit')
  child.kill(signal)
  await ended
}

/** Sends a signal to those processes that are there. */
export function signalThose(pids: readonly number[], signal: NodeJS.Signals): void {
  for (const pid of pids) {
    try {
      process.kill(pid, signal)
    } catch (error) {
      if (errnoOf(error) !== 'ESRCH') throw error
    }
  }
}

/** What the descriptors of this process are, but files of the project, which the test runner may read at any moment. */
export function ownDescriptors(): readonly string[] {
  return readdirSync('/proc/self/fd').flatMap((fd) => {
    const target = textOr(() => readlinkSync(`/proc/self/fd/${fd}`))
    return target === '' || target.startsWith(`${projectRoot}/`) ? [] : [target]
  })
}

/** The ports of TCP on which this process listens. */
export function listeningPorts(): readonly number[] {
  const own = ownDescriptors()
  const lines = readFileSync('/proc/self/net/tcp', 'utf8').split('\n')
  return lines.flatMap((line) => {
    const [, local = '', , state, , , , , , inode] = line.trim().split(/\s+/)
    const isListening = state === '0A' && own.includes(`socket:[${inode}]`)
    return isListening ? [Number.parseInt(local.split(':')[1] ?? '', 16)] : []
  })
}
