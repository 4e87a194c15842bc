import { AgentError } from '../../base/errors.ts'
import type { Process } from '../../gen/oci.ts'
import { printJson } from '../../oci/json.ts'
import { processConfig } from '../../oci/process-config.ts'
import type { Fd, Os, ToolResult } from '../../os/os.ts'
import { endOrphanedRuns } from './orphaned-runs.ts'
import { lastError, runtimeError } from './runtime-error.ts'
import type { ChildPipes } from './stdio.ts'

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

/** The OCI runtime's command line, typed. Each throws INTERNAL with the runtime's own words when it fails. */
export interface OciRuntime {
  /** Makes a container whose first process waits to be started. `signal` kills the runtime in its tracks. */
  create(
    container: {
      readonly id: string
      readonly bundle: string
      /** The program that the bundle's configuration names, for error texts. */
      readonly program: string
      readonly streams: ProcessStreams
    },
    signal: AbortSignal,
  ): Promise<StartedProcess>
  start(containerId: string): Promise<void>
  /** Sets other limits; `resources` is their JSON, and what it lacks stays. */
  update(containerId: string, resources: string): Promise<void>
  /** Freezes all processes; returns when they are. */
  pause(containerId: string): Promise<void>
  resume(containerId: string): Promise<void>
  /** Adds a process. `signal` kills the runtime in its tracks. */
  exec(
    addition: {
      readonly containerId: string
      readonly process: Process
      readonly streams: ProcessStreams
      /** Where below the container's cgroup it goes, such as `/init`; '' for the cgroup itself. */
      readonly cgroup: string
    },
    signal: AbortSignal,
  ): Promise<StartedProcess>
  /**
   * Deletes a container whose processes are gone. One that does not exist is fine. Answers what the runtime complained
   * of although it succeeded: a poststop hook that failed.
   */
  delete(containerId: string): Promise<string | undefined>
  /** Takes away whatever a container that was made half, or by another agent, has left with the runtime. */
  erase(containerId: string): Promise<void>
  /** Ids of the containers the runtime knows. */
  list(): Promise<readonly string[]>
  /** Ends what an agent that died had the runtime do, and takes away what those calls needed. */
  endOrphans(): Promise<void>
}

/** A client of the runtime program. Creates nothing until it is used. */
export function ociRuntime(os: Os, options: RuntimeOptions): OciRuntime {
  const calls = new RuntimeCalls(os, options)
  const stateRoot = `${options.root}/state`
  return {
    create: ({ id, bundle, program, streams }, signal) =>
      calls.launch({ verb: 'create', id, program, streams, args: () => ['--bundle', bundle] }, signal),
    start: (id) => calls.run('start', [id]),
    update: (id, resources) => calls.runWithFile('update', { option: '--resources', text: resources, id }),
    pause: (id) => calls.run('pause', [id]),
    resume: (id) => calls.run('resume', [id]),
    exec: ({ containerId, process, streams, cgroup }, signal) => {
      const args = async (folder: string) => {
        const file = `${folder}/process.json`
        await os.scratch.write(file, printJson(processConfig(process)), { mode: 0o600 })
        return ['--detach', '--process', file, ...(cgroup === '' ? [] : ['--cgroup', cgroup])]
      }
      const program = process.Args[0] ?? ''
      return calls.launch({ verb: 'exec', id: containerId, program, streams, args }, signal)
    },
    delete: async (id) => {
      if ((await os.files.lstat(`${stateRoot}/${id}`)) === undefined) return undefined
      return calls.runComplaining('delete', [id])
    },
    erase: async (id) => {
      if ((await os.files.lstat(`${stateRoot}/${id}`)) === undefined) return
      // A runtime killed in the middle leaves a folder it does not know as a container any more.
      await calls.run('delete', ['--force', id]).catch(() => {})
      await os.files.removeTree(`${stateRoot}/${id}`)
    },
    list: () => os.files.list(stateRoot),
    endOrphans: async () => {
      await endOrphanedRuns(os, stateRoot)
      await os.files.removeTree(`${options.root}/calls`)
    },
  }
}

/** What the dynamic linker exits with instead of running a program that lacks a library. */
const NEVER_RAN = 127

interface Launch {
  readonly verb: 'create' | 'exec'
  readonly id: string
  readonly program: string
  readonly streams: ProcessStreams
  /** The verb's own arguments; `folder` is the call's. */
  readonly args: (folder: string) => readonly string[] | Promise<readonly string[]>
}

/** Single runs of the runtime, each with a folder of its own for its log, pid file and console socket. */
class RuntimeCalls {
  readonly #os: Os
  readonly #options: RuntimeOptions
  #count = 0

  constructor(os: Os, options: RuntimeOptions) {
    this.#os = os
    this.#options = options
  }

  async run(verb: string, args: readonly string[]): Promise<void> {
    await this.#inFolder((folder) => this.#execute(folder, [verb, ...args], {}))
  }

  /** Answers the last error it logged, if any, although it succeeded. */
  async runComplaining(verb: string, args: readonly string[]): Promise<string | undefined> {
    return this.#inFolder(async (folder) => {
      await this.#execute(folder, [verb, ...args], {})
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
      await this.#execute(folder, [verb, input.option, file, input.id], {})
    })
  }

  async launch(launch: Launch, signal: AbortSignal): Promise<StartedProcess> {
    return this.#inFolder(async (folder) => {
      const pidFile = `${folder}/pid`
      const args = [launch.verb, ...(await launch.args(folder)), '--pid-file', pidFile]
      if (launch.streams === 'terminal') return this.#launchOnTerminal(folder, args, launch, signal)
      const options = { program: launch.program, stdio: launch.streams.pipes, signal }
      await this.#execute(folder, [...args, launch.id], options)
      return { pid: await this.#pidIn(pidFile), master: undefined }
    })
  }

  async #launchOnTerminal(
    folder: string,
    args: readonly string[],
    { id, program }: Launch,
    signal: AbortSignal,
  ): Promise<StartedProcess> {
    const socket = this.#os.consoles.listen(`${folder}/tty`)
    const failed = new AbortController()
    const master = socket.master(AbortSignal.any([signal, failed.signal]))
    // It may fail before the runtime's end is seen, whose error says more.
    master.catch(() => {})
    try {
      await this.#execute(folder, [...args, '--console-socket', `${folder}/tty`, id], { program, signal })
      return { pid: await this.#pidIn(`${folder}/pid`), master: await master }
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

  async #execute(
    folder: string,
    args: readonly string[],
    options: { readonly program?: string; readonly stdio?: ChildPipes; readonly signal?: AbortSignal },
  ): Promise<void> {
    const { kind, binary, root } = this.#options
    const log = `${folder}/log.json`
    const cgroups = kind === 'crun' ? ['--cgroup-manager', 'cgroupfs'] : []
    const general = ['--root', `${root}/state`, '--log', log, '--log-format', 'json', ...cgroups]
    const result: ToolResult = await this.#os.tools.run([binary, ...general, ...args], options)
    if (result.exitCode === 0) return
    const text = await this.#os.scratch.readText(log).catch(() => undefined)
    // A runtime makes its log before all else. Where the container has stderr, only the status tells that none ran.
    if (text === undefined && result.exitCode === NEVER_RAN) {
      throw new AgentError('INTERNAL', `the OCI runtime ${binary} lacks a library`)
    }
    throw runtimeError({
      what: `${kind} ${args[0] ?? ''}`,
      result,
      log: text ?? '',
      program: options.program,
    })
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

  async #pidIn(file: string): Promise<number> {
    const text = await this.#os.scratch.readText(file)
    const pid = Number(text.trim())
    if (Number.isSafeInteger(pid) && pid > 0) return pid
    throw new AgentError('INTERNAL', `${file}: not a pid: '${text}'`)
  }
}
