import { checkErrno, unwrap } from '../errors.ts'
import type { Native } from '../native.ts'
import type { Fd, Streams } from '../streams/streams.ts'
import { decodeWaitStatus } from '../supervisor/channel-record.ts'
import type { DeniedCall } from './tools.ts'

export interface Child {
  readonly pid: number
  /** 128 plus the signal if one ended it. */
  readonly exitCode: Promise<number>
  /** Kills its process group. Does nothing after its end. */
  kill(): void
}

export interface ChildStart {
  /** Begins with the absolute path. */
  readonly argv: readonly [string, ...string[]]
  /** argv[0], by default the program's path. */
  readonly name: string | undefined
  readonly env: Readonly<Record<string, string>>
  readonly cwd: string
  /** Its descriptors 0, 1 and 2, which stay open here; undefined is /dev/null. */
  readonly stdio: readonly (Fd | undefined)[]
  readonly denied: readonly DeniedCall[]
  /** Descriptor 0 becomes its controlling terminal, and it ends with the agent. */
  readonly hasTerminal: boolean
}

/** The addon's numbers (native/addon/call-filter.h). */
const DENIED: Readonly<Record<DeniedCall, number>> = { vsock: 1, io_uring: 2 }

/** Starts a program with the limits and signals of an ordinary process. Throws `start <program>: <ERRNO>`. */
export async function startChild(native: Native, streams: Streams, start: ChildStart): Promise<Child> {
  const { argv, name, env, cwd, stdio, denied, hasTerminal } = start
  const [program, ...words] = argv
  const environment = Object.entries(env).map(([name, value]) => `${name}=${value}`)
  const [stdin = -1, stdout = -1, stderr = -1] = stdio
  const started = await native.spawn(
    program,
    [name ?? program, ...words],
    environment,
    cwd,
    stdin,
    stdout,
    stderr,
    denied.reduce((sum, call) => sum | DENIED[call], 0),
    hasTerminal,
  )
  const [pid, ending] = unwrap('start', program, started)
  let isOver = false
  const ended = async () => {
    try {
      await streams.readable(ending)
    } finally {
      streams.close(ending)
    }
    const status = checkErrno('wait for', program, native.reap(pid))
    isOver = true
    return decodeWaitStatus(status).exitCode
  }
  return {
    pid,
    exitCode: ended(),
    kill: () => {
      // The pid belongs to the program until it is reaped.
      if (!isOver) process.kill(-pid, 'SIGKILL')
    },
  }
}
