import { EnsureVmRequest } from '../../../../src/gen/microvm/controller/v1/controller.ts'
import { type HypervisorID, LeaseMode } from '../../../../src/gen/vm.ts'

/** A hypervisor of VM `web` on a host. */
export function hypervisor(host: string, runId = 1n, vmName = 'web'): HypervisorID {
  return { vmName, namespace: 'default', podName: `${host}/i-${vmName}`, runId }
}

export function storageLocking(us: HypervisorID): EnsureVmRequest {
  return EnsureVmRequest.fromPartial({ us, settings: { leaseMode: LeaseMode.LM_STORAGE_LOCKING } })
}

export function fullLeases(us: HypervisorID, leaseTtlMs: bigint): EnsureVmRequest {
  return EnsureVmRequest.fromPartial({ us, settings: { leaseMode: LeaseMode.LM_FULL_LEASES, leaseTtlMs } })
}
