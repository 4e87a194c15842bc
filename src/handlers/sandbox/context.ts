import { RequestJournal } from '../../state/request-journal.ts'
import { OomEvents } from '../cgroup/oom-events.ts'
import { GuestSysctls } from '../container/guest-sysctls.ts'
import { ContainerRegistry } from '../container/registry.ts'
import { type OciRuntime, ociRuntime } from '../oci-runtime/client.ts'
import { ProcessKeys } from '../process/process-keys.ts'
import type { CarriedBytes } from '../process/stdio-calls.ts'
import { OutputReplay } from '../stdio/output-replay.ts'
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
  readonly carried: CarriedBytes
}

export function createSandboxContext(dependencies: SandboxEnvironment): SandboxContext {
  const { os, config, log, state, events } = dependencies
  const requests = new RequestJournal(state, log, dependencies.requestSource)
  const { containerVsock } = config
  const runtime = ociRuntime(os, { ...config.runtime, root: config.runtimeRoot, containerVsock, log })
  return {
    ...dependencies,
    runtime,
    sandboxState: new SandboxState(standInSandbox(ownNamespaces(config))),
    containers: new ContainerRegistry(state, requests),
    keys: new ProcessKeys(),
    oom: new OomEvents(log, { state, events, requests }),
    requests,
    sysctls: new GuestSysctls(os.files),
    carried: { stdin: 0, stdout: 0, stderr: 0 },
    replay: new OutputReplay(config.outputReplayBytes),
    fileCopies: new FileCopies({ os, log, state, requests, root: `${config.sharedRoot}/shared/containers` }),
  }
}
