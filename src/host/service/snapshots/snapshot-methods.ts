import { AgentError, messageOf } from '../../../base/errors.ts'
import type { InstanceServiceDefinition, Specification } from '../../../gen/microvm/instance/v1/instance.ts'
import type { Instances } from '../../instance/instances.ts'
import { pathOf } from '../../spec/component-path.ts'
import { specKey } from '../../spec/spec-key.ts'
import type { Tenant } from '../configuration.ts'
import type { ServiceMethods } from '../rpc.ts'
import { checkTenantBackend, checkTenantSpecification } from '../tenant-rules.ts'

interface SnapshotContext {
  readonly instances: Instances
  readonly tenants: readonly Tenant[]
}

/** The RPCs about snapshots of disks. */
export function snapshotMethods({
  instances,
  tenants,
}: SnapshotContext): Pick<
  ServiceMethods<typeof InstanceServiceDefinition>,
  'snapshot' | 'listSnapshots' | 'revert' | 'removeSnapshot'
> {
  return {
    // Journaled, because a second snapshot would be of another moment.
    snapshot: {
      ...JOURNALED,
      handle: async ({ key, name, disks, quiesce, memory, withoutAgent }, call) => {
        if (withoutAgent && !memory)
          throw invalid('without_agent: without memory no agent is asked, want none')
        const known = { key: specKey(key), name: checkedName(name), disks: disks.map(specKey) }
        const request = { ...known, quiesce, memory, withoutAgent }
        return { snapshot: await instances.snapshot(request, call) }
      },
    },
    listSnapshots: {
      role: 'owner',
      onDaemonDeath: 'read',
      handle: async ({ key }, call) => instances.snapshots(specKey(key), call),
    },
    // Journaled: what was written since would be lost again.
    revert: {
      ...JOURNALED,
      handle: async ({ key, name }, call) =>
        instances.revert(
          { key: specKey(key), name: checkedName(name) },
          (owner, specification) => checkOwner(tenants, owner, specification),
          call,
        ),
    },
    // Journaled, because a snapshot that is gone is not found.
    removeSnapshot: {
      ...JOURNALED,
      handle: async ({ all, key, name }, call) => {
        if (all && name !== '') throw invalid('name: given with all, want one of them')
        return instances.removeSnapshot({ all, key: specKey(key), name: all ? '' : checkedName(name) }, call)
      },
    },
  }
}

const JOURNALED = { role: 'owner', onDaemonDeath: 'journaled' } as const

export function checkedName(name: string): string {
  if (/^[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}$/.test(name)) return name
  throw invalid(`name: ${JSON.stringify(name.slice(0, 64))}, want 1 to 64 of A-Z, a-z, 0-9, _ . -`)
}

/** Throws PERMISSION_DENIED naming all that a tenant may not use any more. The administrator, an empty name, may use all. */
export async function checkOwner(
  tenants: readonly Tenant[],
  owner: string,
  specification: Specification,
): Promise<void> {
  const tenant = tenants.find(({ name }) => name === owner)
  if (owner === '') return
  if (tenant === undefined) throw new AgentError('PERMISSION_DENIED', `tenant ${owner}: not configured`)
  const refusals: string[] = []
  const refuse = (error: unknown) => void refusals.push(messageOf(error))
  await checkTenantSpecification(tenant, { ...specification, backends: {} }).catch(refuse)
  for (const [key, backend] of Object.entries(specification.backends))
    await checkTenantBackend(tenant, pathOf('backends', key), backend).catch(refuse)
  if (refusals.length > 0) throw new AgentError('PERMISSION_DENIED', refusals.join('; '))
}

function invalid(message: string): AgentError {
  return new AgentError('INVALID_ARGUMENT', message)
}
