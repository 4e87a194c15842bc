import { isAbsolute, normalize } from 'node:path'
import { AgentError } from '../../../base/errors.ts'
import type {
  Backend,
  CloneInstanceRequest,
  InstanceServiceDefinition,
  SavedInit,
} from '../../../gen/microvm/instance/v1/instance.ts'
import type { Instances } from '../../instance/instances.ts'
import { TEMPLATE_NAME } from '../../instance/moves.ts'
import { MAX_HOSTNAME } from '../../instance/saved-calls.ts'
import { cloned, isTemplate, type Templates } from '../../migration/templates.ts'
import { pathOf } from '../../spec/component-path.ts'
import { specKey } from '../../spec/spec-key.ts'
import type { Tenant } from '../configuration.ts'
import type { ServiceMethods } from '../rpc.ts'
import { checkTenantBackend } from '../tenant-rules.ts'
import { checkedName, checkOwner } from './snapshot-methods.ts'

/** The RPCs about machines as files. */
export function savedMethods({
  instances,
  templates,
  tenants,
}: {
  readonly instances: Instances
  readonly templates?: Templates | undefined
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
        return await instances.suspend({ ...request, key: specKey(key), name: ownName(name) }, call)
      },
    },
    listSaved: {
      role: 'owner',
      onDaemonDeath: 'read',
      handle: async (_request, call) => ({
        machines: (await instances.listSaved(call)).filter((saved) => !isTemplate(saved)),
      }),
    },
    // Journaled, because what is gone is not found.
    deleteSaved: {
      ...JOURNALED,
      frees: () => true,
      handle: async ({ name }, call) => {
        await instances.deleteSaved(ownName(name), call)
        return {}
      },
    },
    // Journaled, because the saved machine may be gone by the next time.
    cloneInstance: {
      ...JOURNALED,
      handle: async (request, call) => {
        const tenant = tenants.find(({ name }) => name === call.tenant)
        const checked = await checkedClone(tenant, request)
        const saved = { name: checked.saved ?? '', tenant: call.tenant ?? '' }
        const clones = await cloned(templates, saved, () =>
          instances.clone(checked, call, (owner, specification) => checkOwner(tenants, owner, specification)),
        )
        return { instances: [...clones] }
      },
    },
  }
}

/** Of a saved machine that is no template. */
function ownName(name: string): string {
  if (!TEMPLATE_NAME.test(name)) return checkedName(name)
  throw new AgentError('INVALID_ARGUMENT', `name: ${name}: templates are called so, want another one`)
}

const JOURNALED = { role: 'owner', onDaemonDeath: 'journaled' } as const

/** Of one call. */
const MAX_CLONES = 64

async function checkedClone(
  tenant: Tenant | undefined,
  request: CloneInstanceRequest,
): Promise<CloneInstanceRequest> {
  const { count, identity, name, saved, withoutAgent } = request
  const invalid = (text: string) => new AgentError('INVALID_ARGUMENT', text)
  const key = request.key === undefined ? undefined : specKey(request.key)
  if (key === undefined && saved === undefined) throw invalid('from: missing, want key or saved')
  if (key !== undefined && TEMPLATE_NAME.test(key))
    throw invalid(`key: ${key}: templates are called so, want it in saved`)
  if (count < 1 || count > MAX_CLONES) throw invalid(`count: ${count}, want 1 to ${MAX_CLONES}`)
  if (TEMPLATE_NAME.test(specKey(name)))
    throw invalid(`name: ${name}: templates are called so, want another one`)
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
  if (saved !== undefined) checkedName(saved)
  const replaceComponents = await checkedReplaced(tenant, request)
  return { ...request, key, replaceComponents }
}

/** The form `saved` of EnsureInstance, with the keys as specifications have them. Throws what is wrong with it. */
export async function checkedSaved(tenant: Tenant | undefined, init: SavedInit): Promise<SavedInit> {
  checkFolder('saved.folder', init.folder, tenant?.name)
  checkedName(init.name)
  return { ...init, replaceComponents: await checkedReplaced(tenant, init) }
}

async function checkedReplaced(
  tenant: Tenant | undefined,
  init: Pick<SavedInit, 'replaceComponents'>,
): Promise<SavedInit['replaceComponents']> {
  const replaceComponents: Record<string, Backend> = {}
  for (const [given, backend] of Object.entries(init.replaceComponents)) {
    const [key, at] = [specKey(given), `saved.${pathOf('replaceComponents', given)}`]
    if (Object.hasOwn(replaceComponents, key))
      throw new AgentError('INVALID_ARGUMENT', `${at}: the same key as another`)
    if (tenant !== undefined) await checkTenantBackend(tenant, at, backend)
    replaceComponents[key] = backend
  }
  return replaceComponents
}

function checkFolder(field: string, folder: string, tenant: string | undefined): void {
  if (folder === '') return
  if (tenant !== undefined)
    throw new AgentError('PERMISSION_DENIED', `${field}: for the administrator only, want none`)
  if (isAbsolute(folder) && normalize(folder) === folder && !folder.endsWith('/')) return
  throw new AgentError('INVALID_ARGUMENT', `${field}: ${JSON.stringify(folder)}, want an absolute path`)
}
