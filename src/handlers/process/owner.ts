import type { StatusCodeName } from '../../base/errors.ts'
import type { Process } from '../../gen/oci.ts'
import { ProcessState } from '../../gen/state/container.ts'
import type { ContainerRules } from '../../oci/denied-calls.ts'
import type { PciAddresses } from '../../oci/pci-environment.ts'
import type { Os } from '../../os/os.ts'
import type { Cgroup } from '../cgroup/cgroup.ts'
import type { ContainerProcess } from './process.ts'
import type { ProcessTable } from './process-table.ts'

/** Where what is known of the processes of a container outlives the agent. */
export interface ProcessRecords {
  /** Names the container to the OCI runtime. */
  readonly key: string
  /** How many out-of-memory kills were reported. */
  readonly oomKills: bigint
  saveProcess(process: ProcessState): void
  dropProcess(key: string): void
}

/** What is recorded of a process right before the OCI runtime runs. */
export function newProcess(
  { clock }: Pick<Os, 'clock'>,
  execId: string,
  known: Pick<ProcessState, 'key' | 'hasTerminal' | 'request'>,
): ProcessState {
  return { ...ProcessState.create(), execId, ...known, beganNs: clock.boottimeNs() }
}

/** A created container, as far as the operations on its processes need it. */
export interface ProcessOwner {
  readonly init: ContainerProcess
  readonly processes: ProcessTable
  readonly record: ProcessRecords
  readonly cgroup: Cgroup
  /** The description of the first process, which those added later inherit from. */
  readonly spec: { readonly current: ContainerRules & { readonly Process: Process } }
  /** Guest addresses of the container's PCI devices. */
  readonly pciAddresses: PciAddresses
  /**
   * The executable of the first process before it was started: that of the OCI runtime. undefined when it could not be
   * read.
   */
  readonly programBeforeStart: string | undefined
}

/** The containers of the sandbox, as far as the operations on processes look them up. */
export interface ProcessOwners {
  /** The container as things stand. Throws `code` `Invalid container id` for one that is not there, or not yet. */
  get(
    id: string,
    code: StatusCodeName,
  ): { readonly container: { readonly awaitsStart: boolean }; readonly parts: ProcessOwner }
  /** The container, once its creation is over. Throws like `get`, or what `signal` is aborted with. */
  waitFor(id: string, code: StatusCodeName, signal: AbortSignal): Promise<{ readonly parts: ProcessOwner }>
  /**
   * The container, once it is neither being created, started nor updated. Throws INTERNAL unless it is created or
   * running, NOT_FOUND when its first process has ended, or what `signal` is aborted with.
   */
  waitForLiving(id: string, signal: AbortSignal): Promise<ProcessOwner>
}
