import { agent, type Step } from './sequence.ts'

export interface ShimProcess {
  readonly name: string
  readonly key: { readonly containerId: string; readonly execId: string }
}

export function added(name: string, { key }: ShimProcess, execId: string): ShimProcess {
  return { name, key: { containerId: key.containerId, execId } }
}

const READ_BYTES = 32 * 1024

/** Reads both streams to their ends in the background, as `stdout of NAME` and `stderr of NAME`. */
export function outputs(process: ShimProcess): readonly Step[] {
  return [output(process, 'stdout'), output(process, 'stderr')]
}

/** A terminal has only one stream. */
export function output({ name, key }: ShimProcess, stream: 'stdout' | 'stderr'): Step {
  const read = stream === 'stdout' ? 'readStdout' : 'readStderr'
  const call = agent(read, { ...key, len: READ_BYTES })
  return { loop: `${stream} of ${name}`, call, timeoutMs: 'none' }
}

/** An empty text closes stdin. */
export function written({ key }: ShimProcess, text: string): Step {
  const data = Buffer.from(text)
  return {
    call: agent('writeStdin', { ...key, data }),
    timeoutMs: 'none',
    answers: { len: data.length },
  }
}

/** Waits in the background, as `exit of NAME`. */
export function exitAwaited({ name, key }: ShimProcess): Step {
  return { begin: `exit of ${name}`, call: agent('waitProcess', key), timeoutMs: 'none' }
}

/** Both output streams must have ended before. */
export function exited({ key }: ShimProcess, status: number): Step {
  return { call: agent('waitProcess', key), timeoutMs: 'none', answers: { status } }
}

export function signalled({ key }: ShimProcess, signal: number): Step {
  return { call: agent('signalProcess', { ...key, signal }) }
}

export function started({ key: { containerId } }: ShimProcess): Step {
  return { call: agent('startContainer', { containerId }) }
}

export function removed({ key: { containerId } }: ShimProcess): Step {
  return { call: agent('removeContainer', { containerId, timeout: 0 }) }
}
