import { withTimeout } from '../../base/abort.ts'
import { AgentError, errnoOf } from '../../base/errors.ts'
import type { Os } from '../../os/os.ts'
import type { ToolResult } from '../../os/process/tools.ts'
import type { Fd } from '../../os/streams/streams.ts'
import type { ChildPipes } from '../stdio/stdio.ts'
import { lastError, runtimeError } from './runtime-error.ts'

/** How to get at the OCI runtime program. */
export interface RuntimeOptions {
  readonly kind: 'runc' | 'crun'
  /** Absolute path of the program. */
  readonly binary: string
  /** A folder of our own: `state` below it is the runtime's, `calls` holds what single calls need. */
  readonly root: string
}

/** Where a new process's standard streams go: pipes, or a terminal that the runtime makes. */
export type ProcessStreams = { readonly pipes: ChildPipes } | 'terminal'

/** A process that the runtime has made. */
export interface StartedProcess {
  readonly pid: number
  /** The pty's master, which the caller closes; undefined without a terminal. */
  readonly master: Fd | undefined
}

/** How long a run may take that no caller ends: it may wait for a cgroup whose processes cannot be frozen. */
export const RUN_MS = 60_000

/** How long the terminal of a process may take that was made: it is sent before the runtime ends. */
const MASTER_MS = 5000

/** What the dynamic linker exits with instead of running a program that lacks a library. */
const NEVER_RAN = 127

/** A run that makes a process. */
interface Launch {
  readonly verb: 'create' | 'exec'
  readonly id: string
  readonly program: string
  readonly streams: ProcessStreams
  /** Told the process as soon as it is known; undefined when there may be one whose pid nobody will know. */
  readonly onPid: (pid: number | undefined) => void
  /** The verb's own arguments; `folder` is the call's. */
  readonly args: (folder: string) => readonly string[] | Promise<readonly string[]>
}

/** Single runs of the runtime, each with a folder of its own for its log, pid file and console socket. */
export class RuntimeCalls {
  readonly #os: Os
  readonly #options: RuntimeOptions
  #count = 0

  constructor(os: Os, options: RuntimeOptions) {
    this.#os = os
    this.#options = options
  }

  async run(verb: string, args: readonly string[]): Promise<void> {
    await this.#inFolder((folder) => this.#execute(folder, [verb, ...args], { timeoutMs: RUN_MS }))
  }

  /** Answers the last error it logged, if any, although it succeeded. */
  async runComplaining(
    verb: string,
    args: readonly string[],
    timeoutMs: number,
  ): Promise<string | undefined> {
    return this.#inFolder(async (folder) => {
      await this.#execute(folder, [verb, ...args], { timeoutMs })
      return lastError(await this.#os.files.readText(`${folder}/log.json`).catch(() => ''))
    })
  }

  /** Runs a verb that reads `text` from a file. */
  async runWithFile(
    verb: string,
    input: { readonly option: string; readonly text: string; readonly id: string },
  ): Promise<void> {
    await this.#inFolder(async (folder) => {
      const file = `${folder}/input.json`
      await this.#os.scratch.write(file, input.text, { mode: 0o600 })
      await this.#execute(folder, [verb, input.option, file, input.id], { timeoutMs: RUN_MS })
    })
  }

  async launch(launch: Launch, signal: AbortSignal): Promise<StartedProcess> {
    return this.#inFolder(async (folder) => {
      const args = [launch.verb, ...(await launch.args(folder)), '--pid-file', `${folder}/pid`]
      if (launch.streams === 'terminal') return this.#launchOnTerminal(folder, args, launch, signal)
      const stdio = launch.streams.pipes
      const pid = await this.#make(folder, [...args, launch.id], launch, { stdio, signal })
      return { pid, master: undefined }
    })
  }

  async #launchOnTerminal(
    folder: string,
    args: readonly string[],
    launch: Launch,
    signal: AbortSignal,
  ): Promise<StartedProcess> {
    const socket = this.#os.consoles.listen(`${folder}/tty`)
    const failed = new AbortController()
    const master = socket.master(AbortSignal.any([signal, failed.signal]))
    // It may fail before the runtime's end is seen, whose error says more.
    master.catch(() => {})
    try {
      const whole = [...args, '--console-socket', `${folder}/tty`, launch.id]
      const pid = await this.#make(folder, whole, launch, { signal })
      return { pid, master: await withTimeout(this.#os.clock, MASTER_MS, master, () => noMaster(launch)) }
    } catch (error) {
      failed.abort(error)
      await master.then(
        (fd) => this.#os.streams.close(fd),
        () => {},
      )
      throw error
    } finally {
      await socket.close()
    }
  }

  /** Runs a launch and tells the process that it made. A runtime that fails by itself leaves none. */
  async #make(
    folder: string,
    args: readonly string[],
    { program, onPid }: Launch,
    options: { readonly stdio?: ChildPipes; readonly signal: AbortSignal },
  ): Promise<number> {
    let isMade = false
    try {
      await this.#execute(folder, args, { ...options, program })
      isMade = true
      const pid = await this.#pidIn(`${folder}/pid`)
      onPid(pid)
      return pid
    } catch (error) {
      if (isMade || options.signal.aborted) onPid(undefined)
      throw error
    }
  }

  async #pidIn(file: string): Promise<number> {
    const text = await this.#os.scratch.readText(file)
    const pid = Number(text.trim())
    if (Number.isSafeInteger(pid) && pid > 0) return pid
    throw new AgentError('INTERNAL', `${file}: not a pid: '${text}'`)
  }

  async #execute(
    folder: string,
    args: readonly string[],
    options: {
      readonly program?: string
      readonly stdio?: ChildPipes
      readonly signal?: AbortSignal
      readonly timeoutMs?: number
    },
  ): Promise<void> {
    const { kind, binary, root } = this.#options
    const log = `${folder}/log.json`
    const cgroups = kind === 'crun' ? ['--cgroup-manager', 'cgroupfs'] : []
    const general = ['--root', `${root}/state`, '--log', log, '--log-format', 'json', ...cgroups]
    const what = `${kind} ${args[0] ?? ''}`
    const result = await this.#run([binary, ...general, ...args], what, options)
    if (result.exitCode === 0) return
    const text = await this.#os.scratch.readText(log).catch(() => undefined)
    // A runtime makes its log before all else. Where the container has stderr, only the status tells that none ran.
    if (text === undefined && result.exitCode === NEVER_RAN) {
      throw new AgentError('INTERNAL', `the OCI runtime ${binary} lacks a library`)
    }
    throw runtimeError({
      what,
      result,
      log: text ?? '',
      program: options.program,
    })
  }

  async #run(
    argv: readonly [string, ...string[]],
    what: string,
    options: NonNullable<Parameters<Os['tools']['run']>[1]>,
  ): Promise<ToolResult> {
    try {
      return await this.#os.tools.run(argv, options)
    } catch (error) {
      if (errnoOf(error) !== 'ETIMEDOUT') throw error
      const text = `${what}: not finished after ${(options.timeoutMs ?? 0) / 1000} s, and killed`
      throw new AgentError('DEADLINE_EXCEEDED', text, { errno: 'ETIMEDOUT' })
    }
  }

  async #inFolder<T>(work: (folder: string) => Promise<T>): Promise<T> {
    const folder = `${this.#options.root}/calls/${this.#count++}`
    await this.#os.scratch.removeTree(folder)
    await this.#os.scratch.makeDirectories(folder, 0o700)
    try {
      return await work(folder)
    } finally {
      // The call has had its effect: a folder that stays must not make it look failed.
      await this.#os.scratch.removeTree(folder).catch(() => {})
    }
  }
}

function noMaster({ verb, id }: Launch): AgentError {
  const text = `${verb} in container ${id}: the runtime sent no terminal within ${MASTER_MS / 1000} s`
  return new AgentError('INTERNAL', text)
}
