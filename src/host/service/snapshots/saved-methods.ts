import { isAbsolute, normalize } from 'node:path'
import { AgentError } from '../../../base/errors.ts'
import type { InstanceServiceDefinition, SavedInit } from '../../../gen/microvm/instance/v1/instance.ts'
import type { Instances } from '../../instance/instances.ts'
import { pathOf } from '../../spec/component-path.ts'
import { specKey } from '../../spec/spec-key.ts'
import type { Tenant } from '../configuration.ts'
import type { ServiceMethods } from '../rpc.ts'
import { checkTenantBackend } from '../tenant-rules.ts'
import { checkedName } from './snapshot-methods.ts'

/** The RPCs about machines as files. */
export function savedMethods({
  instances,
}: {
  readonly instances: Instances
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
    cloneInstance: { ...JOURNALED, handle: notBuilt },
  }
}

const JOURNALED = { role: 'owner', onDaemonDeath: 'journaled' } as const

async function notBuilt(): Promise<never> {
  throw new AgentError('UNIMPLEMENTED', 'not built yet')
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
