import { AgentError } from '../../base/errors.ts'
import type { Native } from '../native.ts'
import type { Streams } from '../streams/streams.ts'
import { type Child, startChild } from './child.ts'
import { openToolStdio } from './tool-stdio.ts'
import type { Tools } from './tools.ts'

type Options = NonNullable<Parameters<Tools['run']>[1]>

const DEFAULT_PATH = '/bin:/sbin:/usr/bin:/usr/sbin'
/** Time for a killed program to end, and for a finished one's output, which a descendant may hold open. */
const GRACE_MS = 250

export function linuxTools(native: Native, streams: Streams): Tools {
  return {
    startOnTerminal: (argv, terminal, environment) =>
      startChild(native, streams, {
        argv,
        name: undefined,
        cwd: '/',
        denied: [],
        hasTerminal: true,
        env: { PATH: DEFAULT_PATH, ...environment },
        stdio: [terminal, terminal, terminal],
      }),
    async run(argv, options = {}) {
      options.signal?.throwIfAborted()
      const stdio = openToolStdio(streams, options)
      try {
        const env = { PATH: DEFAULT_PATH, ...options.env }
        const { name, cwd = '/', denied = [] } = options
        const start = { argv, name, env, cwd, stdio: stdio.childEnds, denied, hasTerminal: false }
        const child = await startChild(native, streams, start)
        const exchanged = stdio.exchange()
        const exitCode = await finished(child, argv[0], options)
        if (exchanged !== undefined) await withinGrace(exchanged)
        return { exitCode, ...stdio.text() }
      } finally {
        stdio.close()
      }
    },
  }
}

/** On timeout or abort, kills the program and rejects with the reason. */
async function finished(child: Child, program: string, options: Options): Promise<number> {
  const { signal, timeoutMs } = options
  const ended = Promise.withResolvers<number>()
  let interruption: { readonly reason: unknown } | undefined
  child.exitCode.then((exitCode) => {
    if (interruption !== undefined) ended.reject(interruption.reason)
    else ended.resolve(exitCode)
  }, ended.reject)
  const interrupt = (reason: unknown) => {
    interruption ??= { reason }
    child.kill()
    setTimeout(() => ended.reject(reason), GRACE_MS).unref()
  }
  const onAbort = () => interrupt(signal?.reason)
  signal?.addEventListener('abort', onAbort, { once: true })
  if (signal?.aborted) onAbort()
  const timer =
    timeoutMs === undefined ? undefined : setTimeout(() => interrupt(timedOut(program, timeoutMs)), timeoutMs)
  try {
    return await ended.promise
  } finally {
    clearTimeout(timer)
    signal?.removeEventListener('abort', onAbort)
  }
}

async function withinGrace(work: Promise<void>): Promise<void> {
  const late = Promise.withResolvers<void>()
  const timer = setTimeout(late.resolve, GRACE_MS)
  await Promise.race([work, late.promise])
  clearTimeout(timer)
}

function timedOut(program: string, timeoutMs: number): AgentError {
  return new AgentError('INTERNAL', `run ${program}: not finished after ${timeoutMs} ms`, {
    errno: 'ETIMEDOUT',
  })
}
