import { isAbsolute, normalize } from 'node:path'
import { AgentError } from '../../../base/errors.ts'
import type {
  CloneInstanceRequest,
  InstanceServiceDefinition,
  SavedInit,
} from '../../../gen/microvm/instance/v1/instance.ts'
import type { Instances } from '../../instance/instances.ts'
import { MAX_HOSTNAME } from '../../instance/saved-calls.ts'
import { pathOf } from '../../spec/component-path.ts'
import { specKey } from '../../spec/spec-key.ts'
import type { Tenant } from '../configuration.ts'
import type { ServiceMethods } from '../rpc.ts'
import { checkTenantBackend } from '../tenant-rules.ts'
import { checkedName, checkOwner } from './snapshot-methods.ts'

/** The RPCs about machines as files. */
export function savedMethods({
  instances,
  tenants,
}: {
  readonly instances: Instances
  readonly tenants: readonly Tenant[]
}): Pick<
  ServiceMethods<typeof InstanceServiceDefinition>,
  'suspendInstance' | 'listSaved' | 'deleteSaved' | 'cloneInstance'
> {
  return {
    // Journaled, because an instance that is saved is not found.
    suspendInstance: {
      ...JOURNALED,
      handle: async (request, call) => {
        const { folder, key, name } = request
        checkFolder('folder', folder, call.tenant)
        return await instances.suspend({ ...request, key: specKey(key), name: checkedName(name) }, call)
      },
    },
    listSaved: {
      role: 'owner',
      onDaemonDeath: 'read',
      handle: async (_request, call) => ({ machines: [...(await instances.listSaved(call))] }),
    },
    // Journaled, because what is gone is not found.
    deleteSaved: {
      ...JOURNALED,
      frees: () => true,
      handle: async ({ name }, call) => {
        await instances.deleteSaved(checkedName(name), call)
        return {}
      },
    },
    // Journaled, because the saved machine may be gone by the next time.
    cloneInstance: {
      ...JOURNALED,
      handle: async (request, call) => {
        await checkClone(
          tenants.find(({ name }) => name === call.tenant),
          request,
        )
        const clones = await instances.clone(request, call, (owner, specification) =>
          checkOwner(tenants, owner, specification),
        )
        return { instances: [...clones] }
      },
    },
  }
}

const JOURNALED = { role: 'owner', onDaemonDeath: 'journaled' } as const

/** Of one call. */
const MAX_CLONES = 64

async function checkClone(
  tenant: Tenant | undefined,
  { count, identity, key, name, replaceComponents, saved, withoutAgent }: CloneInstanceRequest,
): Promise<void> {
  const invalid = (text: string) => new AgentError('INVALID_ARGUMENT', text)
  if (key !== undefined)
    throw new AgentError(
      'UNIMPLEMENTED',
      'key: no clone of a machine that runs, want it suspended, and saved',
    )
  if (saved === undefined) throw invalid('saved: missing')
  if (count < 1 || count > MAX_CLONES) throw invalid(`count: ${count}, want 1 to ${MAX_CLONES}`)
  specKey(name)
  const hostname = identity?.hostname ?? ''
  const length = Buffer.byteLength(count === 1 ? hostname : `${hostname}-${count}`)
  if (hostname !== '' && length > MAX_HOSTNAME)
    throw invalid(`identity.hostname: ${length} bytes with its number, want at most ${MAX_HOSTNAME}`)
  if (withoutAgent && identity !== undefined) throw invalid('identity: no agent takes it, want none')
  const isShared = (identity?.interfaces ?? []).some(
    (each) => each.hwAddr !== '' || each.IPAddresses.length > 0,
  )
  if (count > 1 && isShared)
    throw invalid('identity.interfaces: addresses of several clones, want a count of 1')
  await checkSaved(tenant, { name: saved, folder: '', replaceComponents, identity })
}

/** Throws what is wrong with the form `saved` of EnsureInstance. */
export async function checkSaved(
  tenant: Tenant | undefined,
  { folder, name, replaceComponents }: SavedInit,
): Promise<void> {
  checkFolder('saved.folder', folder, tenant?.name)
  checkedName(name)
  for (const [key, backend] of Object.entries(replaceComponents))
    if (tenant !== undefined)
      await checkTenantBackend(tenant, `saved.${pathOf('replaceComponents', key)}`, backend)
}

function checkFolder(field: string, folder: string, tenant: string | undefined): void {
  if (folder === '') return
  if (tenant !== undefined)
    throw new AgentError('PERMISSION_DENIED', `${field}: for the administrator only, want none`)
  if (isAbsolute(folder) && normalize(folder) === folder && !folder.endsWith('/')) return
  throw new AgentError('INVALID_ARGUMENT', `${field}: ${JSON.stringify(folder)}, want an absolute path`)
}
