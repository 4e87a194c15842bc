import { AgentError } from '../../base/errors.ts'
import type { SecretServiceDefinition } from '../../gen/microvm/instance/v1/secret.ts'
import type { Secrets } from '../secrets/secrets.ts'
import { TENANT_NAME } from './configuration.ts'
import type { ServiceCall, ServiceMethods } from './rpc.ts'

/** The RPCs about secrets, of which no record is kept: a digest of a short secret would tell it. */
export function secretMethods(secrets: Secrets): ServiceMethods<typeof SecretServiceDefinition> {
  return {
    setSecret: {
      ...UNRECORDED,
      handle: async ({ tenant, uuid, value }, call) => secrets.set(ownerOf(tenant, call), uuid, value),
    },
    listSecrets: {
      role: 'owner',
      onDaemonDeath: 'read',
      handle: async (_request, { tenant }) => ({ secrets: [...(await secrets.list(tenant))] }),
    },
    removeSecret: {
      ...UNRECORDED,
      handle: async ({ tenant, uuid }, call) => {
        await secrets.remove(ownerOf(tenant, call), uuid)
        return {}
      },
    },
  }
}

const UNRECORDED = { role: 'owner', onDaemonDeath: 'idempotent', isUnrecorded: true } as const

function ownerOf(wanted: string, { tenant }: ServiceCall): string {
  if (wanted !== '' && !TENANT_NAME.test(wanted))
    throw new AgentError('INVALID_ARGUMENT', 'tenant: not the name of a tenant')
  if (tenant !== undefined && wanted !== '' && wanted !== tenant)
    throw new AgentError(
      'PERMISSION_DENIED',
      `tenant: another one, want ${JSON.stringify(tenant)} or none on this socket`,
    )
  return tenant ?? wanted
}
