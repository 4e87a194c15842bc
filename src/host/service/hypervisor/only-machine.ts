import { AgentError } from '../../../base/errors.ts'
import {
  type EnsureInstanceRequest,
  type Lease,
  MigrationTarget,
} from '../../../gen/microvm/instance/v1/instance.ts'
import type { Instances } from '../../instance/instances.ts'
import { NAMESPACE, type OnlyVm } from '../../instance/moving/only-vm.ts'

/** The machine of a hypervisor, which has no other. */
export interface OnlyMachine extends Pick<OnlyVm, 'name' | 'namespace'> {
  /** A second socket of the administrator. */
  readonly listen: string | undefined
  /** What it has of this host when it comes from another one; undefined where it does not. */
  readonly awaited?: AwaitedMachine | undefined
  /** Called before other hosts and controllers are served. */
  readonly prepare: (instances: Instances) => Promise<void>
}

export interface AwaitedMachine {
  readonly backends: MigrationTarget['replaceComponents']
  readonly lease: Lease | undefined
}

/** A call of EnsureInstance as a hypervisor takes it. Throws FAILED_PRECONDITION for another machine than its own. */
export function ofOnly(only: OnlyMachine, request: EnsureInstanceRequest): EnsureInstanceRequest {
  const { migrationTarget, properties } = request
  if (properties === undefined) return request
  const refuse = (text: string) => new AgentError('FAILED_PRECONDITION', text)
  if (properties.key !== only.name) throw refuse(`properties.key: this hypervisor has ${only.name} only`)
  if (migrationTarget === undefined) {
    if (only.awaited === undefined) return request
    throw refuse('migration_target: missing, want it, because this hypervisor awaits its machine')
  }
  const namespace = properties.tenant || NAMESPACE
  if (namespace !== only.namespace)
    throw refuse(`properties.tenant: this hypervisor has ${only.name} of namespace ${only.namespace} only`)
  if (only.awaited === undefined)
    throw refuse(
      'migration_target: this hypervisor awaits no machine, want VM_SPEC with SM_INCOMING_MIGRATION',
    )
  const { backends, lease } = only.awaited
  return {
    ...request,
    properties: { ...properties, tenant: '', lease },
    migrationTarget: MigrationTarget.fromPartial({ ...migrationTarget, replaceComponents: backends }),
  }
}
