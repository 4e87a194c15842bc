import type { StatusCodeName } from '../../base/errors.ts'
import type { Process } from '../../gen/oci.ts'
import { type HangupState, ProcessState } from '../../gen/state/container.ts'
import type { ContainerRules } from '../../oci/denied-calls.ts'
import type { PciAddresses } from '../../oci/pci-environment.ts'
import type { Os } from '../../os/os.ts'
import type { Waiting } from '../../state/request.ts'
import type { Cgroup } from '../cgroup/cgroup.ts'
import type { ContainerProcess } from './process.ts'
import type { ProcessTable } from './process-table.ts'

/** The container's record, as far as the operations on its processes need it. */
export interface ProcessRecords {
  /** Names the container to the OCI runtime. */
  readonly key: string
  /** The container's id, which a Rename changes. */
  readonly id: string
  readonly oomKills: bigint
  readonly execs: readonly ProcessState[]
  saveProcess(process: ProcessState): void
  saveHangup(key: string, hangup: HangupState | undefined): void
  dropProcess(key: string): void
}

/** The record of a process right before the OCI runtime runs. */
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
  /** Added processes inherit from the first one. */
  readonly spec: { readonly current: ContainerRules & { readonly Process: Process } }
  readonly pciAddresses: PciAddresses
  /** The executable of the first process before its start (the OCI runtime); undefined when it could not be read. */
  readonly programBeforeStart: string | undefined
}

export interface ProcessOwners {
  /** Looks the container up now. Throws `code` `Invalid container id` when it is missing or still being created. */
  get(
    id: string,
    code: StatusCodeName,
  ): { readonly container: { readonly awaitsStart: boolean }; readonly parts: ProcessOwner }
  /** Waits for the end of a creation. Throws like `get`, or the reason of the call's signal. */
  waitFor(id: string, code: StatusCodeName, call: Waiting): Promise<{ readonly parts: ProcessOwner }>
  /**
   * Waits for the end of a creation, start or update. Throws INTERNAL unless the container is created or running, NOT_FOUND
   * when its first process has ended, or the reason of `signal`.
   */
  waitForLiving(id: string, signal: AbortSignal): Promise<ProcessOwner>
}
