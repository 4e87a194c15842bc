import { randomUUID } from 'node:crypto'
import type { InstanceRecord } from '../../../gen/microvm/instance/v1/records.ts'
import { HypervisorID } from '../../../gen/vm.ts'

/** The VM of a hypervisor that has no other: how controllers know it. */
export interface OnlyVm {
  readonly name: string
  readonly namespace: string
  /** Of the state folder. */
  readonly podId: string
}

/** Of the machines of the administrator. */
export const NAMESPACE = 'default'

export function namespaceOf(tenant = '', only?: Pick<OnlyVm, 'namespace'>): string {
  return tenant || (only?.namespace ?? NAMESPACE)
}

export function tenantOf({ namespace }: Pick<HypervisorID, 'namespace'>, only?: OnlyVm): string {
  return namespace === namespaceOf('', only) ? '' : namespace
}

/** By which controllers know the runs of an instance as those of one. A hypervisor makes its instance anew at each start. */
export function instanceIdOf({ instanceId }: { readonly instanceId: string }, only?: OnlyVm): string {
  return instanceId || only?.podId || randomUUID()
}

/** Names the present run of an instance on this host. */
export function hypervisorOf(
  { instanceId, properties, runId }: Readonly<InstanceRecord>,
  host: { readonly id: string; readonly only?: OnlyVm | undefined },
): HypervisorID {
  return HypervisorID.fromPartial({
    vmName: properties?.key ?? '',
    namespace: namespaceOf(properties?.tenant, host.only),
    podName: `${host.id}/${instanceId}`,
    runId,
  })
}

/** Whether a hypervisor is of the host. */
export function isOf(host: string, { podName }: Pick<HypervisorID, 'podName'>): boolean {
  return podName.startsWith(`${host}/`) && podName.length > host.length + 1
}
