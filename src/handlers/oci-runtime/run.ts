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

/** Which OCI runtime program is run, and where its files are. */
export interface RuntimeOptions {
  readonly kind: 'runc' | 'crun'
  /** Absolute path of the program. */
  readonly binary: string
  /** Whether the processes of containers may make sockets of AF_VSOCK, where their annotations do not say. */
  readonly containerVsock: ContainerVsock
  /** A folder of the agent's own: the runtime's state is in `state` below it, the files of single runs in `calls`. */
  readonly root: string
  readonly log: Logger
}

/** One run of the runtime that makes no process. */
export interface Run {
  readonly verb: string
  readonly args: readonly string[]
  /** A text that the runtime reads from a file, and the option that names the file. */
  readonly input?: { readonly option: string; readonly text: string }
  /** Milliseconds after which the runtime is killed; {@link RUN_MS} unless named. */
  readonly timeoutMs?: number
  /** Kills the runtime at once. */
  readonly signal?: AbortSignal
}

/** One run of the runtime that makes a process: `create` or `exec`. */
export interface LaunchRun {
  readonly verb: 'create' | 'exec'
  /** The key of the process. The folder of the run has it as its name, and stays until {@link RuntimeRuns.discard}. */
  readonly key: string
  readonly containerId: string
  /** Arguments of the verb, without the container's id, which comes last. */
  readonly args: readonly string[]
  readonly input?: Run['input']
  /** The program that the process executes, for error texts. */
  readonly program: string
  readonly streams: ProcessStreams
  /** What the process is denied. The run is denied it too, and so are the hooks in it. */
  readonly denied: readonly DeniedCall[]
  /** Whether a process is in the container's cgroup: the agent signals no other one, whatever the runtime says. */
  readonly isMember: (pid: number) => Promise<boolean>
}

/** The standard streams of a new process: descriptors that become 0, 1 and 2, or a terminal that the runtime makes. */
export type ProcessStreams =
  | { readonly pipes: readonly [Fd, Fd, Fd] }
  | { readonly terminal: ConsoleListener }

/** What a run that makes a process has left. A run that made none rejects. */
export type LaunchOutcome =
  /** The process was made. `master` is its pty's master, which the caller closes; undefined without a terminal. */
  | { readonly kind: 'started'; readonly pid: number; readonly master: Fd | undefined }
  /** The run failed after the process was made, or may have been: `pid` is undefined when it cannot be known. */
  | { readonly kind: 'half-started'; readonly pid: number | undefined; readonly error: unknown }

/** How long a run may take that no caller ends: it may wait for a cgroup whose processes cannot be frozen. */
export const RUN_MS = 60_000

/** How long a run that makes a process may take, whatever its caller's deadline: the container's hooks run in it. */
const LAUNCH_MS = 300_000

/** How long the terminal of a process may take that was made: the runtime sends it before it ends. */
const MASTER_MS = 5000

/** How much of the end of a runtime's log is read: its last error says what went wrong. */
const LOG_BYTES = 64 * 1024

const PID_BYTES = 32

/** What seccomp(2) answers where the kernel has no filters. */
const NO_FILTER: readonly string[] = ['EINVAL', 'ENOSYS']

/** The files in the folder of a run, besides the console socket. */
const FILES = { log: 'log.json', pid: 'pid', input: 'input.json' } as const

/** The exit status of the dynamic linker when a program lacks a library. */
const NEVER_RAN = 127

/** Runs the runtime program. Each run has a folder of its own for its log, pid file, input and console socket. */
export class RuntimeRuns {
  readonly #os: Os
  readonly #options: RuntimeOptions
  #count = 0

  constructor(os: Os, options: RuntimeOptions) {
    this.#os = os
    this.#options = options
  }

  /**
   * Runs a verb to its end. Resolves with the last error of its log, which a run that succeeds may contain. Throws
   * INTERNAL with the runtime's words, DEADLINE_EXCEEDED when it was killed at the end of its time, or the reason of
   * its signal.
   */
  async run({ verb, args, input, timeoutMs = RUN_MS, signal }: Run): Promise<string | undefined> {
    return this.#inFolder(async (folder) => {
      const inputArgs = await this.#writeInput(folder, input)
      await this.#execute(folder, [verb, ...inputArgs, ...args], { timeoutMs, ...(signal && { signal }) })
      return lastError(await this.#readLog(folder))
    })
  }

  /** Runs a verb that makes a process. Rejects when it made none. The runtime is killed when `signal` fires, and after five
   * minutes. */
  async launch(run: LaunchRun, signal: AbortSignal): Promise<LaunchOutcome> {
    const folder = await this.#makeFolder(run.key)
    const inputArgs = await this.#writeInput(folder, run.input)
    const args = [run.verb, ...run.args, ...inputArgs, '--pid-file', `${folder}/${FILES.pid}`]
    const { streams } = run
    return 'terminal' in streams
      ? this.#launchOnTerminal(folder, args, { ...run, console: streams.terminal }, signal)
      : this.#launchOnPipes(folder, args, { ...run, pipes: streams.pipes }, signal)
  }

  /** The pid of the process that a launch of the previous agent made; undefined when it has made none. */
  async adopt(key: string, isMember: LaunchRun['isMember']): Promise<number | undefined> {
    try {
      const pid = await this.#readPid(`${this.#folderOf(key)}/${FILES.pid}`)
      return (await isMember(pid)) ? pid : undefined
    } catch {
      return undefined
    }
  }

  /** Removes the folder of a launch: until then an agent after this one can find out what the run has made. */
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
    // It may fail before the runtime has ended, whose error says more.
    master.catch(() => {})
    let outcome: LaunchOutcome | undefined
    try {
      const whole = [...args, '--console-socket', `${folder}/tty`, containerId]
      const made = await this.#makeProcess(folder, whole, { ...run, signal })
      outcome = made.kind === 'made' ? await this.#withTerminal(made.pid, master, run) : made
      return outcome
    } finally {
      if (outcome?.kind !== 'started') await this.#discard(master, unwanted)
      // The run has had its effect: a socket that cannot be removed must not make it look failed.
      await socket.close().catch(() => {})
    }
  }

  /** Waits for the terminal of a process that was made. */
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

  /** Rejects when the runtime failed by itself: it leaves no process then. One that was killed may have made it. */
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

  async #execute(
    folder: string,
    args: readonly string[],
    options: {
      readonly program?: string
      readonly stdio?: readonly [Fd, Fd, Fd]
      readonly denied?: readonly DeniedCall[]
      readonly signal?: AbortSignal
      readonly timeoutMs?: number
    },
  ): Promise<void> {
    const { kind, binary, root } = this.#options
    const log = `${folder}/${FILES.log}`
    const cgroups = kind === 'crun' ? ['--cgroup-manager', 'cgroupfs'] : []
    const general = ['--root', `${root}/state`, '--log', log, '--log-format', 'json', ...cgroups]
    const what = `${kind} ${args[0] ?? ''}`
    const result = await inStep('runtime', what, () =>
      this.#runTool([binary, ...general, ...args], what, options),
    )
    if (result.exitCode === 0) return
    const text = await this.#os.scratch.readTail(log, LOG_BYTES).catch(() => undefined)
    // A runtime makes its log before all else, and stderr may be the container's: without a log only the status tells.
    if (text === undefined && result.exitCode === NEVER_RAN) {
      throw new AgentError('INTERNAL', `the OCI runtime ${binary} lacks a library`)
    }
    throw runError({ what, result, log: text ?? '', program: options.program })
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
    // Runs of the previous agent may be under way.
    const name = `run-${this.#os.system.pid}-${this.#count++}`
    try {
      return await work(await this.#makeFolder(name))
    } finally {
      await this.discard(name)
    }
  }

  async #makeFolder(name: string): Promise<string> {
    const folder = this.#folderOf(name)
    if ((await this.#os.scratch.stat(folder)) !== undefined) await this.#os.scratch.removeTree(folder)
    await this.#os.scratch.makeDirectories(folder, 0o700)
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

/** Without the words "not found" and "not exist", which a caller would take for the container. */
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
