import type { Fd } from '../streams/streams.ts'

export interface ToolResult {
  /** 128 + signal when a signal ended it. */
  readonly exitCode: number
  readonly stdout: string
  readonly stderr: string
}

/**
 * Short-lived helper programs (runc, modprobe, mkfs …). They run with oom_score_adj 0 and the default
 * RLIMIT_NOFILE, in an environment of PATH alone unless `env` says more.
 */
export interface Tools {
  /** Runs to the end. Rejects only when it cannot be started, times out (it is killed) or `signal` fires (it is killed). */
  run(
    argv: readonly [string, ...string[]],
    options?: {
      /** argv[0] for the program, when it is not the path: one of several programs in one file goes by it. */
      readonly name?: string
      readonly stdin?: string | Uint8Array
      /** fds that become 0, 1 and 2 of the program instead of /dev/null and captured pipes. They stay open here. */
      readonly stdio?: readonly [Fd | undefined, Fd | undefined, Fd | undefined]
      readonly cwd?: string
      readonly env?: Readonly<Record<string, string>>
      readonly timeoutMs?: number
      readonly signal?: AbortSignal
      /** How its output becomes text: `latin1` makes each byte a character. Default `utf8`. */
      readonly encoding?: 'utf8' | 'latin1'
      /** Per stream; more is dropped and noted. Default 64 KiB. */
      readonly maxOutputBytes?: number
    },
  ): Promise<ToolResult>
}
