import { checkErrno, unwrap } from '../errors.ts'
import type { Native } from '../native.ts'
import type { Fd, Streams } from '../streams/streams.ts'
import { decodeWaitStatus } from '../supervisor/channel-record.ts'

/** A program that we started and wait for, in a process group of its own. */
export interface Child {
  /** Its exit code, or 128 plus the signal that ended it. */
  readonly exitCode: Promise<number>
  /** Kills it and what it has started, as far as that stays in its group. Nothing happens once it has ended. */
  kill(): void
}

/** What to start. */
export interface ChildStart {
  /** The program's absolute path and its arguments. */
  readonly argv: readonly [string, ...string[]]
  /** What it is told to be called, when that is not its path. */
  readonly name: string | undefined
  readonly env: Readonly<Record<string, string>>
  readonly cwd: string
  /** For its descriptors 0, 1 and 2; they stay open here. /dev/null where undefined. */
  readonly stdio: readonly (Fd | undefined)[]
}

/** Starts a program with the limits and signals of an ordinary process. Throws `start <program>: <ERRNO>`. */
export async function startChild(native: Native, streams: Streams, start: ChildStart): Promise<Child> {
  const { argv, name, env, cwd, stdio } = start
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
    exitCode: ended(),
    kill: () => {
      // Until it is reaped its number is nobody else's.
      if (!isOver) process.kill(-pid, 'SIGKILL')
    },
  }
}
