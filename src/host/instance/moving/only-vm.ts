import { randomUUID } from 'node:crypto'
import type { HypervisorID } from '../../../gen/vm.ts'

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
