import { LONGEST_TIMER_MS } from '../../base/abort.ts'
import { messageOf } from '../../base/errors.ts'
import { inStep } from '../../base/step.ts'
import type { Process, Spec } from '../../gen/oci.ts'
import { type ContainerRules, deniedCalls } from '../../oci/denied-calls.ts'
import { printJson } from '../../oci/json.ts'
import { openAdvisories } from '../../oci/runtime-advisories.ts'
import { processConfig } from '../../oci/runtime-config.ts'
import type { Os } from '../../os/os.ts'
import { type EndedContainer, NativeDelete } from './native-delete.ts'
import { killOrphanedRuns, orphanedRuns, orphanedRunsEnded, type RunSearch } from './orphaned-runs.ts'
import {
  type LaunchOutcome,
  type LaunchRun,
  type ProcessStreams,
  RUN_MS,
  type RuntimeOptions,
  RuntimeRuns,
} from './run.ts'
import { namingHooks } from './run-error.ts'
import { RuntimeFile } from './runtime-program.ts'

/**
 * The OCI runtime's command line, typed. Each call throws INTERNAL with the runtime's own error. A `signal` kills the runtime
 * at once. Calls without one throw DEADLINE_EXCEEDED when the runtime was killed after its time, and may have done half.
 */
export interface OciRuntime {
  /** Makes a container whose first process awaits its start. */
  create(
    container: {
      /** See {@link LaunchRun.key}; `discardRun` must follow, whatever the outcome. */
      readonly key: string
      readonly id: string
      readonly bundle: string
      readonly program: string
      readonly streams: ProcessStreams
      readonly spec: ContainerRules & Pick<Spec, 'Hooks'>
      readonly isMember: LaunchRun['isMember']
    },
    signal: AbortSignal,
  ): Promise<LaunchOutcome>
  start(containerId: string, signal: AbortSignal): Promise<void>
  /** `resources` is JSON; limits that it lacks stay. */
  update(containerId: string, resources: string, signal: AbortSignal): Promise<void>
  /** Resolves when all processes are frozen. */
  pause(containerId: string, signal: AbortSignal): Promise<void>
  resume(containerId: string, signal: AbortSignal): Promise<void>
  exec(
    addition: {
      readonly key: string
      readonly containerId: string
      readonly process: Process
      readonly streams: ProcessStreams
      readonly spec: ContainerRules
      /** The cgroup of the process below the container's, such as `/init`; '' for the container's own. */
      readonly cgroup: string
      readonly isMember: LaunchRun['isMember']
    },
    signal: AbortSignal,
  ): Promise<LaunchOutcome>
  /**
   * Deletes a container whose processes have ended, with its cgroup, if it exists. Resolves with the error of a poststop hook
   * that failed, although the container is deleted. `hooksMs` is added to the runtime's time.
   */
  delete(container: EndedContainer, hooksMs: number): Promise<string | undefined>
  discardRun(key: string): Promise<void>
  /** No run may be under way. */
  discardAllRuns(): Promise<void>
  /** Removes the runtime's state of a container that was made half, or by an agent that died. */
  erase(containerId: string): Promise<void>
  /** Warns when the runtime has known break-outs, and again when its program has changed. */
  warnOfHoles(): Promise<void>
  readonly seccomp: RuntimeSeccomp
  list(): Promise<readonly string[]>
  /** A container that awaits its start waits at a fifo of the runtime. */
  hasStarted(containerId: string): Promise<boolean>
  /**
   * Waits for the previous agent's runs for this container. 10 s after the first call, for any container, it kills them.
   * `isStarting`: a `start` may be under way, which leaves no trace but its process.
   */
  runsEnded(
    container: { readonly id: string; readonly isStarting: boolean },
    isContained: RunSearch['isContained'],
  ): Promise<void>
  /** The pid of the process that a run of the previous agent made, if any. `runsEnded` must be awaited first. */
  adopt(process: {
    readonly key: string
    readonly isMember: LaunchRun['isMember']
  }): Promise<number | undefined>
  /** Kills the previous agent's runs, and removes their files. */
  killOrphans(isContained: RunSearch['isContained']): Promise<void>
}

export function ociRuntime(os: Os, options: RuntimeOptions): OciRuntime {
  const runs = new RuntimeRuns(os, options)
  const holes = new KnownHoles(os, options)
  const native = new NativeDelete(os, options, holes.file)
  const [stateRoot, calls] = [`${options.root}/state`, `${options.root}/calls`]
  let orphans: { readonly found: ReturnType<typeof orphanedRuns>; readonly sinceMs: number } | undefined
  const stateOf = (id: string) => os.files.lstat(`${stateRoot}/${id}`)
  return {
    create: async ({ id, bundle, spec, ...run }, signal) => {
      void holes.look()
      const denied = deniedCalls(spec, options.containerVsock)
      const args = ['--bundle', bundle]
      const named = (error: unknown) => namingHooks(error, spec.Hooks)
      try {
        const made = await runs.launch({ verb: 'create', containerId: id, args, denied, ...run }, signal)
        return made.kind === 'half-started' ? { ...made, error: named(made.error) } : made
      } catch (error) {
        throw named(error)
      }
    },
    start: async (id, signal) => {
      await runs.run({ verb: 'start', args: [id], signal, log: 'stderr' })
    },
    update: async (id, resources, signal) => {
      const input = { option: '--resources', text: resources }
      await runs.run({ verb: 'update', input, args: [id], signal })
    },
    pause: async (id, signal) => {
      await runs.run({ verb: 'pause', args: [id], signal })
    },
    resume: async (id, signal) => {
      await runs.run({ verb: 'resume', args: [id], signal })
    },
    exec: ({ containerId, process, cgroup, spec, ...run }, signal) => {
      void holes.look()
      const denied = deniedCalls(spec, options.containerVsock)
      const args = ['--detach', ...(cgroup === '' ? [] : ['--cgroup', cgroup])]
      const input = { option: '--process', text: printJson(processConfig(process)) }
      const program = process.Args[0] ?? ''
      return runs.launch({ verb: 'exec', containerId, args, input, program, denied, ...run }, signal)
    },
    delete: async ({ id, ...ended }, hooksMs) => {
      const isDeleted = await inStep('runtime', 'native delete', () => native.delete({ id, ...ended }))
      if (isDeleted || (await stateOf(id)) === undefined) return undefined
      const timeoutMs = Math.min(RUN_MS + hooksMs, LONGEST_TIMER_MS)
      try {
        return await runs.run({ verb: 'delete', args: [id], timeoutMs })
      } catch (error) {
        // runc fails when a poststop hook does, after it has deleted the container.
        if ((await stateOf(id)) !== undefined) throw error
        return messageOf(error)
      }
    },
    discardRun: (key) => runs.discard(key),
    discardAllRuns: () => os.files.removeTree(calls),
    hasStarted: async (id) => (await os.files.lstat(`${stateRoot}/${id}/exec.fifo`)) === undefined,
    async runsEnded({ id, isStarting }, isContained) {
      if (!isStarting && !(await runs.hasFolders())) return
      const search = { root: stateRoot, isContained }
      // One search serves all containers, because no orphan appears later and a search reads every process in /proc.
      orphans ??= { found: orphanedRuns(os, search), sinceMs: os.clock.monotonicMs() }
      const { found, sinceMs } = orphans
      if (!(await found).some(({ words }) => words.includes(id))) return
      await orphanedRunsEnded(os, search, { word: id, sinceMs })
    },
    adopt: ({ key, isMember }) => runs.adopt(key, isMember),
    erase: async (id) => {
      if ((await stateOf(id)) === undefined) return
      // A killed runtime may leave a folder that its `delete` does not accept as a container.
      await runs.run({ verb: 'delete', args: ['--force', id] }).catch(() => {})
      await os.files.removeTree(`${stateRoot}/${id}`)
    },
    warnOfHoles: () => holes.look(),
    seccomp: runtimeSeccomp(holes.file, options),
    // crun has folders of its own beside those of the containers, such as `.cache`.
    list: async () => (await os.files.list(stateRoot)).filter((name) => !name.startsWith('.')),
    killOrphans: (isContained) =>
      killOrphanedRuns(os, { root: stateRoot, isContained }).then(() => os.files.removeTree(calls)),
  }
}

export interface RuntimeSeccomp {
  /** False, with a log line, when the runtime does not tell. */
  isSupported(): Promise<boolean>
  flags(): Promise<ReadonlySet<string>>
}

/** The flags of crun, whose `features` command lists none. */
const CRUN_FLAGS = new Set(['TSYNC', 'SPEC_ALLOW', 'LOG'].map((name) => `SECCOMP_FILTER_FLAG_${name}`))

function runtimeSeccomp(file: RuntimeFile, { kind, binary: runtime, log }: RuntimeOptions): RuntimeSeccomp {
  const found = async () => {
    const program = await file.look()
    if (program === undefined) throw new Error(`${runtime}: not found`)
    return program
  }
  return {
    isSupported: async () => {
      try {
        return await (await found()).supportsSeccomp()
      } catch (error) {
        log.warn('features of the runtime unknown', { runtime, error: messageOf(error) })
        return false
      }
    },
    flags: async () => (kind === 'crun' ? CRUN_FLAGS : await (await found()).seccompFlags()),
  }
}

export class KnownHoles {
  readonly #options: Pick<RuntimeOptions, 'kind' | 'binary' | 'log'>
  readonly file: RuntimeFile
  #seen: string | undefined

  constructor(os: Pick<Os, 'tools' | 'scratch'>, options: Pick<RuntimeOptions, 'kind' | 'binary' | 'log'>) {
    this.#options = options
    this.file = new RuntimeFile(os, options.binary)
  }

  /** Warns once per runtime program if it has known holes or reports no version. Never rejects. */
  async look(): Promise<void> {
    const { kind, binary: runtime, log } = this.#options
    try {
      const program = await this.file.look()
      if (this.#seen === (program?.file ?? '')) return
      this.#seen = program?.file ?? ''
      if (program === undefined) return log.warn('OCI runtime missing', { runtime })
      const version = await program.version()
      const open = openAdvisories(kind, version)
      if (open.length === 0) return
      const advisories = open.map(({ id }) => id).join(' ')
      log.warn('runtime has known break-outs', { runtime, runtimeVersion: version, advisories })
    } catch (error) {
      log.warn('version of the runtime unknown', { runtime, error: messageOf(error) })
    }
  }
}
