import { RequestJournal } from '../../state/request-journal.ts'
import { OomEvents } from '../cgroup/oom-events.ts'
import { ContainerNames } from '../container/container-names.ts'
import { GuestSysctls } from '../container/guest-sysctls.ts'
import { ContainerRegistry } from '../container/registry.ts'
import { type OciRuntime, ociRuntime } from '../oci-runtime/client.ts'
import { HangupSignals } from '../process/hangup-signals.ts'
import { ProcessKeys } from '../process/process-keys.ts'
import type { CarriedBytes } from '../process/stdio-calls.ts'
import { OutputReplay } from '../stdio/output-replay.ts'
import { PortLinks } from '../stdio/ports/port-links.ts'
import { FileCopies } from '../storage/copies/file-copies.ts'
import { ownNamespaces, type SandboxEnvironment } from './sandbox-config.ts'
import { SandboxState, standInSandbox } from './sandbox-state.ts'

/** What the operations on the sandbox, its containers and their processes share. */
export interface SandboxContext extends SandboxEnvironment {
  readonly sandboxState: SandboxState
  readonly containers: ContainerRegistry
  readonly keys: ProcessKeys
  readonly runtime: OciRuntime
  readonly oom: OomEvents
  readonly requests: RequestJournal
  readonly sysctls: GuestSysctls
  readonly fileCopies: FileCopies
  readonly replay: OutputReplay
  readonly ports: PortLinks
  readonly carried: CarriedBytes
  readonly hangups: HangupSignals
}

export function createSandboxContext(dependencies: SandboxEnvironment): SandboxContext {
  const { os, config, log, state, events } = dependencies
  const requests = new RequestJournal(state, log, dependencies.requestSource)
  const { containerVsock } = config
  const names = new ContainerNames(state)
  const containers = new ContainerRegistry({ state, answers: requests, names })
  const runtime = ociRuntime(os, { ...config.runtime, root: config.runtimeRoot, containerVsock, log })
  return {
    ...dependencies,
    runtime,
    sandboxState: new SandboxState(standInSandbox(ownNamespaces(config))),
    containers,
    keys: new ProcessKeys(),
    oom: new OomEvents(log, { state, events, requests, names }),
    requests,
    sysctls: new GuestSysctls(os.files),
    carried: { stdin: 0, stdout: 0, stderr: 0 },
    hangups: new HangupSignals(),
    replay: new OutputReplay(config.outputReplayBytes),
    ports: new PortLinks({
      ...dependencies,
      graceMs: config.streamGraceMs,
      resumes: config.streamResume,
      ownerOf: (key) => ownerOf(containers, key),
    }),
    fileCopies: new FileCopies({ os, log, state, requests, root: `${config.sharedRoot}/shared/containers` }),
  }
}

/** The process that has a key; undefined while it is being made. */
function ownerOf(
  containers: ContainerRegistry,
  key: string,
): { containerId: string; execId: string } | undefined {
  for (const { id: containerId, state } of containers.list()) {
    if (!('parts' in state)) continue
    for (const [execId, process] of state.parts.processes.trackedByExecId())
      if (process.key === key) return { containerId, execId }
  }
  return undefined
}
