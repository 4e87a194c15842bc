import { agent, type Step } from './sequence.ts'

/** A process of a container, and its name in the steps. */
export interface ShimProcess {
  readonly name: string
  readonly key: { readonly containerId: string; readonly execId: string }
}

/** An exec process in the container of the given process. */
export function added(name: string, { key }: ShimProcess, execId: string): ShimProcess {
  return { name, key: { containerId: key.containerId, execId } }
}

const READ_BYTES = 32 * 1024

/** Reads both streams to their ends in the background, as `stdout of NAME` and `stderr of NAME` (C.14). */
export function outputs(from: string, process: ShimProcess): readonly Step[] {
  return [output(from, process, 'stdout'), output(from, process, 'stderr')]
}

/** Reads one stream to its end in the background; a terminal has only one. */
export function output(from: string, { name, key }: ShimProcess, stream: 'stdout' | 'stderr'): Step {
  const read = stream === 'stdout' ? 'readStdout' : 'readStderr'
  const call = agent(read, { ...key, len: READ_BYTES })
  return { from, loop: `${stream} of ${name}`, call, timeoutMs: 'none' }
}

/** Writes to the stdin of a process; an empty text closes stdin (C.13). */
export function written(from: string, { key }: ShimProcess, text: string): Step {
  const data = Buffer.from(text)
  return {
    from,
    call: agent('writeStdin', { ...key, data }),
    timeoutMs: 'none',
    answers: { len: data.length },
  }
}

/** Waits for the exit of a process in the background, as `exit of NAME` (C.6). */
export function exitAwaited(from: string, { name, key }: ShimProcess): Step {
  return { from, begin: `exit of ${name}`, call: agent('waitProcess', key), timeoutMs: 'none' }
}

/** Waits for the exit of a process after both its output streams have ended (C.6). */
export function exited(from: string, { key }: ShimProcess, status: number): Step {
  return { from, call: agent('waitProcess', key), timeoutMs: 'none', answers: { status } }
}

/** Sends a signal to a process (C.5). */
export function signalled(from: string, { key }: ShimProcess, signal: number): Step {
  return { from, call: agent('signalProcess', { ...key, signal }) }
}

/** Starts the container of an init process (C.2). */
export function started(from: string, { key: { containerId } }: ShimProcess): Step {
  return { from, call: agent('startContainer', { containerId }) }
}

/** Removes the container of an init process (C.3). */
export function removed(from: string, { key: { containerId } }: ShimProcess): Step {
  return { from, call: agent('removeContainer', { containerId, timeout: 0 }) }
}
