import type { Fd } from '../streams/streams.ts'

/** What a program and all of its descendants can be denied: sockets of AF_VSOCK (EPERM), and io_uring (ENOSYS). */
export type DeniedCall = 'vsock' | 'io_uring'

/** The result of a helper program. */
export interface ToolResult {
  /** 128 + signal when a signal ended the program. */
  readonly exitCode: number
  readonly stdout: string
  readonly stderr: string
}

/**
 * Runs short-lived helper programs (runc, modprobe, mkfs …). They have oom_score_adj 0 and the default RLIMIT_NOFILE. Their
 * environment is PATH and `env`.
 */
export interface Tools {
  /** Runs a program to its end. Rejects when it cannot be started; kills it and rejects on timeout or when `signal` fires. */
  run(
    argv: readonly [string, ...string[]],
    options?: {
      /** argv[0] when it is not the path, for a file that is several programs. */
      readonly name?: string
      readonly stdin?: string | Uint8Array
      /** Descriptors for 0, 1 and 2 of the program instead of /dev/null and captured pipes. They stay open here. */
      readonly stdio?: readonly [Fd | undefined, Fd | undefined, Fd | undefined]
      readonly cwd?: string
      readonly env?: Readonly<Record<string, string>>
      /** Enforced by a seccomp filter, which no descendant can remove. */
      readonly denied?: readonly DeniedCall[]
      readonly timeoutMs?: number
      readonly signal?: AbortSignal
      /** The encoding of the output, by default `utf8`; `latin1` makes each byte a character. */
      readonly encoding?: 'utf8' | 'latin1'
      /** Per stream, by default 64 KiB; more is dropped and noted. */
      readonly maxOutputBytes?: number
    },
  ): Promise<ToolResult>
  /**
   * Starts a program in a session of its own, whose controlling terminal and standard streams are `terminal`, which stays
   * open here. The kernel kills it when the agent dies. Rejects when it cannot be started.
   */
  startOnTerminal(
    argv: readonly [string, ...string[]],
    terminal: Fd,
    environment: Readonly<Record<string, string>>,
  ): Promise<RunningProgram>
}

/** A program that runs. */
export interface RunningProgram {
  /** Also the number of its session. */
  readonly pid: number
  /** Resolves at its end, with 128 + signal when a signal ended it. */
  readonly exitCode: Promise<number>
}
