import { type ChildProcess, spawn } from 'node:child_process'
import { constants } from 'node:os'
import { AgentError, errnoOf } from '../base/errors.ts'
import { BoundedText } from './bounded-text.ts'
import { fromNodeError } from './errors.ts'
import type { ToolResult, Tools } from './os.ts'

type Options = NonNullable<Parameters<Tools['run']>[1]>

const DEFAULT_MAX_OUTPUT_BYTES = 64 * 1024
const DEFAULT_PATH = '/bin:/sbin:/usr/bin:/usr/sbin'
/** How long a killed program may take to be gone, and a finished one's output to end: a descendant may hold it. */
const GRACE_MS = 250

/**
 * Starts helper programs through `vminit tool -- …`, which gives them the limits, the oom_score_adj and the signals
 * of an ordinary process instead of the agent's.
 */
export function linuxTools(vminit: string): Tools {
  return {
    async run(argv, options = {}) {
      options.signal?.throwIfAborted()
      const child = start(vminit, argv, options)
      const limit = options.maxOutputBytes ?? DEFAULT_MAX_OUTPUT_BYTES
      const stdout = new BoundedText(limit)
      const stderr = new BoundedText(limit)
      child.stdout?.on('data', (chunk: Buffer) => stdout.add(chunk))
      child.stderr?.on('data', (chunk: Buffer) => stderr.add(chunk))
      feed(child, options.stdin)
      const exitCode = await finished(child, argv[0], options)
      const result = { exitCode, stdout: stdout.text(), stderr: stderr.text() }
      throwUnlessStarted(result, argv[0])
      return result
    },
  }
}

function start(vminit: string, argv: readonly string[], options: Options): ChildProcess {
  const [stdin, stdout, stderr] = options.stdio ?? []
  const name = options.name === undefined ? [] : ['--as', options.name]
  return spawn(vminit, ['tool', ...name, '--', ...argv], {
    stdio: [stdin ?? (options.stdin === undefined ? 'ignore' : 'pipe'), stdout ?? 'pipe', stderr ?? 'pipe'],
    env: { PATH: DEFAULT_PATH, ...options.env },
    // A session of its own, so that all it starts can be killed as one group.
    detached: true,
    ...(options.cwd === undefined ? {} : { cwd: options.cwd }),
  })
}

function feed(child: ChildProcess, stdin: string | Uint8Array | undefined): void {
  // A program may end without having read everything: its exit code says whether that matters.
  child.stdin?.on('error', () => {})
  child.stdin?.end(stdin)
}

/** The exit code; rejects when it could not start, after its time, or with what the signal was aborted with. */
async function finished(child: ChildProcess, program: string, options: Options): Promise<number> {
  const ended = Promise.withResolvers<number>()
  child.on('error', (error) => ended.reject(fromNodeError('start', program, error)))
  child.on('close', (code, signal) => ended.resolve(exitCodeOf(code, signal)))
  child.on('exit', (code, signal) => {
    later(() => {
      child.stdout?.destroy()
      child.stderr?.destroy()
      ended.resolve(exitCodeOf(code, signal))
    })
  })
  const interrupt = (reason: unknown) => {
    killGroup(child)
    child.on('exit', () => ended.reject(reason))
    later(() => ended.reject(reason))
  }
  const onAbort = () => interrupt(options.signal?.reason)
  options.signal?.addEventListener('abort', onAbort, { once: true })
  const timeout = options.timeoutMs
  const timer =
    timeout === undefined ? undefined : setTimeout(() => interrupt(timedOut(program, timeout)), timeout)
  try {
    return await ended.promise
  } finally {
    clearTimeout(timer)
    options.signal?.removeEventListener('abort', onAbort)
  }
}

function later(action: () => void): void {
  setTimeout(action, GRACE_MS).unref()
}

function killGroup(child: ChildProcess): void {
  // Once it has exited its number may be somebody else's.
  if (child.pid === undefined || child.exitCode !== null || child.signalCode !== null) return
  try {
    process.kill(-child.pid, 'SIGKILL')
  } catch (error) {
    // Reaped, but its exit not told yet: several that end together are reaped first, then told one by one.
    if (errnoOf(error) !== 'ESRCH') throw error
  }
}

/** `vminit tool` says on stderr why it could not run a program, and exits as a shell would. */
function throwUnlessStarted(result: ToolResult, program: string): void {
  const saidByVminit = 'vminit: tool: '
  if (result.exitCode < 125 || result.exitCode > 127 || !result.stderr.startsWith(saidByVminit)) return
  throw new AgentError('INTERNAL', `start ${program}: ${result.stderr.slice(saidByVminit.length).trim()}`)
}

function timedOut(program: string, timeoutMs: number): AgentError {
  return new AgentError('INTERNAL', `run ${program}: not finished after ${timeoutMs} ms`, {
    errno: 'ETIMEDOUT',
  })
}

function exitCodeOf(code: number | null, signal: NodeJS.Signals | null): number {
  return code ?? (signal === null ? 0 : 128 + constants.signals[signal])
}
