import { LONGEST_TIMER_MS } from '../../base/abort.ts'
import type { Process } from '../../gen/oci.ts'
import { printJson } from '../../oci/json.ts'
import { processConfig } from '../../oci/process-config.ts'
import type { Os } from '../../os/os.ts'
import { endOrphanedRuns } from './orphaned-runs.ts'
import {
  type ProcessStreams,
  RUN_MS,
  RuntimeCalls,
  type RuntimeOptions,
  type StartedProcess,
} from './runtime-calls.ts'

/**
 * The OCI runtime's command line, typed. Each throws INTERNAL with the runtime's own words when it fails, and those
 * without a signal DEADLINE_EXCEEDED when it does not end: it is killed then, and may have done half.
 */
export interface OciRuntime {
  /**
   * Makes a container whose first process waits to be started. `signal` kills the runtime in its tracks. `onPid` is
   * told the process as soon as it is known, for what comes after may still fail; undefined when the call fails and may
   * have left one whose pid nobody knows.
   */
  create(
    container: {
      readonly id: string
      readonly bundle: string
      /** The program that the bundle's configuration names, for error texts. */
      readonly program: string
      readonly streams: ProcessStreams
      readonly onPid: (pid: number | undefined) => void
    },
    signal: AbortSignal,
  ): Promise<StartedProcess>
  start(containerId: string): Promise<void>
  /** Sets other limits; `resources` is their JSON, and what it lacks stays. */
  update(containerId: string, resources: string): Promise<void>
  /** Freezes all processes; returns when they are. */
  pause(containerId: string): Promise<void>
  resume(containerId: string): Promise<void>
  /** Adds a process. `signal` and `onPid` are as in {@link OciRuntime.create}. */
  exec(
    addition: {
      readonly containerId: string
      readonly process: Process
      readonly streams: ProcessStreams
      readonly onPid: (pid: number | undefined) => void
      /** Where below the container's cgroup it goes, such as `/init`; '' for the cgroup itself. */
      readonly cgroup: string
    },
    signal: AbortSignal,
  ): Promise<StartedProcess>
  /**
   * Deletes a container whose processes are gone. One that does not exist is fine. Answers what the runtime complained
   * of although it succeeded: a poststop hook that failed. `hooksMs` is how long these hooks may take.
   */
  delete(containerId: string, hooksMs: number): Promise<string | undefined>
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
    create: ({ bundle, ...container }, signal) =>
      calls.launch({ ...container, verb: 'create', args: () => ['--bundle', bundle] }, signal),
    start: (id) => calls.run('start', [id]),
    update: (id, resources) => calls.runWithFile('update', { option: '--resources', text: resources, id }),
    pause: (id) => calls.run('pause', [id]),
    resume: (id) => calls.run('resume', [id]),
    exec: ({ containerId, process, streams, cgroup, onPid }, signal) => {
      const args = async (folder: string) => {
        const file = `${folder}/process.json`
        await os.scratch.write(file, printJson(processConfig(process)), { mode: 0o600 })
        return ['--detach', '--process', file, ...(cgroup === '' ? [] : ['--cgroup', cgroup])]
      }
      const program = process.Args[0] ?? ''
      return calls.launch({ verb: 'exec', id: containerId, program, streams, onPid, args }, signal)
    },
    delete: async (id, hooksMs) => {
      if ((await os.files.lstat(`${stateRoot}/${id}`)) === undefined) return undefined
      return calls.runComplaining('delete', [id], Math.min(RUN_MS + hooksMs, LONGEST_TIMER_MS))
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
