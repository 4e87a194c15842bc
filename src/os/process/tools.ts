import type { Fd } from '../streams/streams.ts'

/** Denied to a program and its descendants: AF_VSOCK sockets (EPERM), io_uring (ENOSYS). */
export type DeniedCall = 'vsock' | 'io_uring'

export interface ToolResult {
  /** 128 + signal when a signal ended the program. */
  readonly exitCode: number
  readonly stdout: string
  readonly stderr: string
}

/** Runs helper programs (runc, mkfs …) with oom_score_adj 0, the default RLIMIT_NOFILE, PATH and `env`. */
export interface Tools {
  /** Rejects when the program cannot be started. Kills it and rejects on timeout or when `signal` fires. */
  run(
    argv: readonly [string, ...string[]],
    options?: {
      /** argv[0] when it is not the path, for a file that is several programs. */
      readonly name?: string
      readonly stdin?: string | Uint8Array
      /** For descriptors 0, 1 and 2, instead of /dev/null and captured pipes. They stay open here. */
      readonly stdio?: readonly [Fd | undefined, Fd | undefined, Fd | undefined]
      /** Its descriptor 1 is /dev/null unless `stdio` has another. */
      readonly dropsStdout?: boolean
      readonly cwd?: string
      readonly env?: Readonly<Record<string, string>>
      /** By a seccomp filter, which no descendant can remove. */
      readonly denied?: readonly DeniedCall[]
      readonly timeoutMs?: number
      readonly signal?: AbortSignal
      /** The encoding of the output, by default `utf8`; `latin1` makes each byte a character. */
      readonly encoding?: 'utf8' | 'latin1'
      /** Per stream, by default 64 KiB; more is dropped and noted. */
      readonly maxOutputBytes?: number
    },
  ): Promise<ToolResult>
  /** Starts a program in its own session on `terminal`, which stays open here. The kernel kills it with the agent. */
  startOnTerminal(
    argv: readonly [string, ...string[]],
    terminal: Fd,
    environment: Readonly<Record<string, string>>,
  ): Promise<RunningProgram>
}

export interface RunningProgram {
  /** Also the number of its session. */
  readonly pid: number
  /** 128 + signal when a signal ended it. */
  readonly exitCode: Promise<number>
}
