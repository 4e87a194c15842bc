import { withTimeout } from '../../base/abort.ts'
import { AgentError, errnoOf } from '../../base/errors.ts'
import type { Logger } from '../../base/log.ts'
import { inStep } from '../../base/step.ts'
import type { ContainerVsock } from '../../oci/denied-calls.ts'
import type { Os } from '../../os/os.ts'
import type { DeniedCall, ToolResult } from '../../os/process/tools.ts'
import type { ConsoleListener } from '../../os/streams/consoles.ts'
import type { Fd } from '../../os/streams/streams.ts'
import { lastError, runError } from './run-error.ts'

export interface RuntimeOptions {
  readonly kind: 'runc' | 'crun'
  /** Absolute path of the program. */
  readonly binary: string
  /** For containers whose annotations do not decide about sockets of AF_VSOCK. */
  readonly containerVsock: ContainerVsock
  /** The agent's own folder: `state` below it is the runtime's state, `calls` has the files of single runs. */
  readonly root: string
  readonly log: Logger
}

/** One run of the runtime that makes no process. */
export interface Run {
  readonly verb: string
  readonly args: readonly string[]
  /** A text that the runtime reads from a file, and the option that names the file. */
  readonly input?: { readonly option: string; readonly text: string }
  /** Kills the runtime; {@link RUN_MS} by default. */
  readonly timeoutMs?: number
  readonly signal?: AbortSignal
  /** Where the runtime logs to: by default a file, because stderr may be that of a hook too. */
  readonly log?: 'stderr'
}

export interface LaunchRun {
  readonly verb: 'create' | 'exec'
  /** The key of the process. It names the folder of the run, which stays until {@link RuntimeRuns.discard}. */
  readonly key: string
  readonly containerId: string
  /** Without the container's id, which comes last. */
  readonly args: readonly string[]
  readonly input?: Run['input']
  /** For error texts. */
  readonly program: string
  readonly streams: ProcessStreams
  /** Calls that are denied to the process, and to the runtime and its hooks too. */
  readonly denied: readonly DeniedCall[]
  /** Whether a process is in the container's cgroup. The agent signals no other process, whatever pid the runtime writes. */
  readonly isMember: (pid: number) => Promise<boolean>
}

/** Descriptors that become 0, 1 and 2, or a terminal that the runtime makes. */
export type ProcessStreams =
  | { readonly pipes: readonly [Fd, Fd, Fd] }
  | { readonly terminal: ConsoleListener }

/** The outcome of a run that has made a process, or may have. A run that made none rejects. */
export type LaunchOutcome =
  /** `master` is the pty's master, which the caller closes; undefined without a terminal. */
  | { readonly kind: 'started'; readonly pid: number; readonly master: Fd | undefined }
  /** The run failed after it made the process, or may have made it. `pid` is undefined when it is unknown. */
  | { readonly kind: 'half-started'; readonly pid: number | undefined; readonly error: unknown }

/** A run may wait for ever for a cgroup whose processes cannot be frozen. */
export const RUN_MS = 60_000

/** A run that makes a process may take long, because it runs the container's hooks. */
const LAUNCH_MS = 300_000

/** The wait for a terminal is short, because the runtime sends it before it ends. */
const MASTER_MS = 5000

/** The end of a log suffices, because its last error says what went wrong. */
const LOG_BYTES = 64 * 1024

const PID_BYTES = 32

const FOLDER_MODE = 0o700

/** A folder in memory has a link more for each folder in it. */
const LINKS_OF_EMPTY = 2

/** The errors of seccomp(2) in a kernel without filters. */
const NO_FILTER: readonly string[] = ['EINVAL', 'ENOSYS']

const FILES = { log: 'log.json', pid: 'pid', input: 'input.json' } as const

/** The exit status of the dynamic linker when a program lacks a library. */
const NEVER_RAN = 127

/** Each run has a folder of its own for its log, pid file, input and console socket. */
export class RuntimeRuns {
  readonly #os: Os
  readonly #options: RuntimeOptions
  #count = 0

  constructor(os: Os, options: RuntimeOptions) {
    this.#os = os
    this.#options = options
  }

  /**
   * Resolves with the last error of the log, which a successful run may contain. Throws INTERNAL with the runtime's error,
   * DEADLINE_EXCEEDED when the runtime was killed after its time, or the reason of its signal.
   */
  async run({ verb, args, input, timeoutMs = RUN_MS, signal, log }: Run): Promise<string | undefined> {
    const limits = { timeoutMs, ...(signal && { signal }) }
    if (log === 'stderr') return lastError(await this.#execute(undefined, [verb, ...args], limits))
    return this.#inFolder(async (folder) => {
      const inputArgs = await this.#writeInput(folder, input)
      await this.#execute(folder, [verb, ...inputArgs, ...args], limits)
      return lastError(await this.#readLog(folder))
    })
  }

  /** Rejects when the run made no process. The runtime is killed when `signal` fires, and after five minutes. */
  async launch(run: LaunchRun, signal: AbortSignal): Promise<LaunchOutcome> {
    const folder = await this.#makeFolder(run.key)
    const inputArgs = await this.#writeInput(folder, run.input)
    const args = [run.verb, ...run.args, ...inputArgs, '--pid-file', `${folder}/${FILES.pid}`]
    const { streams } = run
    return 'terminal' in streams
      ? this.#launchOnTerminal(folder, args, { ...run, console: streams.terminal }, signal)
      : this.#launchOnPipes(folder, args, { ...run, pipes: streams.pipes }, signal)
  }

  /** The pid of the process that a launch of the previous agent made, if any. */
  async adopt(key: string, isMember: LaunchRun['isMember']): Promise<number | undefined> {
    try {
      const pid = await this.#readPid(`${this.#folderOf(key)}/${FILES.pid}`)
      return (await isMember(pid)) ? pid : undefined
    } catch {
      return undefined
    }
  }

  /** Whether the previous agent has left a folder: while a run is under way, it has one, unless it logs to stderr. */
  async hasFolders(): Promise<boolean> {
    const status = await this.#os.scratch.stat(`${this.#options.root}/calls`)
    return status !== undefined && status.links > LINKS_OF_EMPTY
  }

  /** Removes the folder of a launch. Until then, the next agent can `adopt` the process. */
  async discard(key: string): Promise<void> {
    // The run has had its effect: a folder that cannot be removed must not make it look failed.
    await this.#os.scratch.removeTree(this.#folderOf(key), Object.values(FILES)).catch(() => {})
  }

  async #launchOnPipes(
    folder: string,
    args: readonly string[],
    { pipes, containerId, ...run }: LaunchRun & { readonly pipes: readonly [Fd, Fd, Fd] },
    signal: AbortSignal,
  ): Promise<LaunchOutcome> {
    const made = await this.#makeProcess(folder, [...args, containerId], { ...run, stdio: pipes, signal })
    return made.kind === 'made' ? { kind: 'started', pid: made.pid, master: undefined } : made
  }

  async #launchOnTerminal(
    folder: string,
    args: readonly string[],
    run: LaunchRun & { readonly console: ConsoleListener },
    signal: AbortSignal,
  ): Promise<LaunchOutcome> {
    const { containerId } = run
    const socket = this.#os.consoles.listen(`${folder}/tty`, run.console)
    const unwanted = new AbortController()
    const master = socket.master(AbortSignal.any([signal, unwanted.signal]))
    // The socket may fail before the runtime does, whose error says more.
    master.catch(() => {})
    let outcome: LaunchOutcome | undefined
    try {
      const whole = [...args, '--console-socket', `${folder}/tty`, containerId]
      const made = await this.#makeProcess(folder, whole, { ...run, signal })
      outcome = made.kind === 'made' ? await this.#withTerminal(made.pid, master, run) : made
      return outcome
    } finally {
      if (outcome?.kind !== 'started') await this.#discard(master, unwanted)
      await socket.close().catch(() => {})
    }
  }

  async #withTerminal(pid: number, master: Promise<Fd>, run: LaunchRun): Promise<LaunchOutcome> {
    try {
      const fd = await inStep('terminal', '', () =>
        withTimeout(this.#os.clock, MASTER_MS, master, () => noMaster(run)),
      )
      return { kind: 'started', pid, master: fd }
    } catch (error) {
      return { kind: 'half-started', pid, error }
    }
  }

  /** Closes a terminal that the runtime has sent, or stops waiting for it. */
  async #discard(master: Promise<Fd>, unwanted: AbortController): Promise<void> {
    unwanted.abort()
    await master.then(
      (fd) => this.#os.streams.close(fd),
      () => {},
    )
  }

  /** Rejects when the runtime failed by itself, because it then leaves no process. A killed runtime may leave one. */
  async #makeProcess(
    folder: string,
    args: readonly string[],
    options: {
      readonly stdio?: readonly [Fd, Fd, Fd]
      readonly program: string
      readonly denied: readonly DeniedCall[]
      readonly isMember: LaunchRun['isMember']
      readonly signal: AbortSignal
    },
  ): Promise<
    { readonly kind: 'made'; readonly pid: number } | Extract<LaunchOutcome, { kind: 'half-started' }>
  > {
    const { stdio, program, denied, signal, isMember } = options
    try {
      const limits = { denied, signal, timeoutMs: LAUNCH_MS }
      await this.#execute(folder, args, { ...(stdio && { stdio }), program, ...limits })
    } catch (error) {
      if (!signal.aborted && errnoOf(error) !== 'ETIMEDOUT') throw error
      return { kind: 'half-started', pid: undefined, error }
    }
    try {
      const pid = await this.#readPid(`${folder}/${FILES.pid}`)
      if (await isMember(pid)) return { kind: 'made', pid }
      const { kind } = this.#options
      throw new AgentError(
        'INTERNAL',
        `${kind} ${args[0] ?? ''}: process ${pid} is not in the container's cgroup`,
      )
    } catch (error) {
      return { kind: 'half-started', pid: undefined, error }
    }
  }

  async #readPid(file: string): Promise<number> {
    const text = await this.#os.scratch.readText(file, PID_BYTES)
    const pid = Number(text.trim())
    if (Number.isSafeInteger(pid) && pid > 0) return pid
    throw new AgentError('INTERNAL', `${file}: not a pid: '${text}'`)
  }

  async #writeInput(folder: string, input: Run['input']): Promise<readonly string[]> {
    if (input === undefined) return []
    const file = `${folder}/${FILES.input}`
    await this.#os.scratch.write(file, input.text, { mode: 0o600 })
    return [input.option, file]
  }

  /** Returns the text of stderr. Without a folder, that is the log. */
  async #execute(
    folder: string | undefined,
    args: readonly string[],
    options: {
      readonly program?: string
      readonly stdio?: readonly [Fd, Fd, Fd]
      readonly denied?: readonly DeniedCall[]
      readonly signal?: AbortSignal
      readonly timeoutMs?: number
    },
  ): Promise<string> {
    const { kind, binary, root } = this.#options
    const file = folder && `${folder}/${FILES.log}`
    const log = file === undefined ? [] : ['--log', file]
    const cgroups = kind === 'crun' ? ['--cgroup-manager', 'cgroupfs'] : []
    const general = ['--root', `${root}/state`, ...log, '--log-format', 'json', ...cgroups]
    const what = `${kind} ${args[0] ?? ''}`
    const run = { ...options, ...(file === undefined && { dropsStdout: true }) }
    const result = await inStep('runtime', what, () =>
      this.#runTool([binary, ...general, ...args], what, run),
    )
    if (result.exitCode === 0) return result.stderr
    const text = file && (await this.#os.scratch.readTail(file, LOG_BYTES).catch(() => undefined))
    // A runtime creates its log first, and stderr may be the container's: without a log, only the exit status is left.
    if (text === undefined && result.exitCode === NEVER_RAN) {
      throw new AgentError('INTERNAL', `the OCI runtime ${binary} lacks a library`)
    }
    throw runError({ what, result, log: text ?? result.stderr, program: options.program })
  }

  async #runTool(
    argv: readonly [string, ...string[]],
    what: string,
    options: NonNullable<Parameters<Os['tools']['run']>[1]>,
  ): Promise<ToolResult> {
    try {
      return await this.#os.tools.run(argv, options)
    } catch (error) {
      const errno = errnoOf(error) ?? ''
      if ((options.denied ?? []).length > 0 && NO_FILTER.includes(errno)) throw noFilter(what, errno)
      if (errno === 'ENOENT') throw missing(this.#options)
      if (errno !== 'ETIMEDOUT') throw error
      const text = `${what}: not finished after ${(options.timeoutMs ?? 0) / 1000} s, and killed`
      throw new AgentError('DEADLINE_EXCEEDED', text, { errno: 'ETIMEDOUT' })
    }
  }

  async #readLog(folder: string): Promise<string> {
    return this.#os.scratch.readTail(`${folder}/${FILES.log}`, LOG_BYTES).catch(() => '')
  }

  async #inFolder<T>(work: (folder: string) => Promise<T>): Promise<T> {
    // The pid keeps the name apart from runs of the previous agent, which may be under way.
    const name = `run-${this.#os.system.pid}-${this.#count++}`
    try {
      return await work(await this.#makeFolder(name))
    } finally {
      await this.discard(name)
    }
  }

  async #makeFolder(name: string): Promise<string> {
    const folder = this.#folderOf(name)
    try {
      await this.#os.scratch.makeDirectory(folder, FOLDER_MODE)
    } catch {
      // Its parent is missing, or a call of the previous agent has left it.
      await this.#os.scratch.removeTree(folder)
      await this.#os.scratch.makeDirectories(folder, FOLDER_MODE)
    }
    return folder
  }

  #folderOf(name: string): string {
    return `${this.#options.root}/calls/${name}`
  }
}

function noFilter(what: string, errno: string): AgentError {
  const text = `${what}: AF_VSOCK cannot be denied (seccomp: ${errno}), want a kernel with CONFIG_SECCOMP_FILTER or agent.container_vsock=allow`
  return new AgentError('FAILED_PRECONDITION', text)
}

/** The text avoids "not found" and "not exist", which callers take for a missing container. */
function missing({ binary }: RuntimeOptions): AgentError {
  return new AgentError(
    'INTERNAL',
    `the OCI runtime ${binary} cannot be started: it or its loader is missing`,
    {
      errno: 'ENOENT',
    },
  )
}

function noMaster({ verb, containerId }: LaunchRun): AgentError {
  const text = `${verb} in container ${containerId}: the runtime sent no terminal within ${MASTER_MS / 1000} s`
  return new AgentError('INTERNAL', text)
}
