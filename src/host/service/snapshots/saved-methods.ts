import { AgentError } from '../../../base/errors.ts'
import type { InstanceServiceDefinition } from '../../../gen/microvm/instance/v1/instance.ts'
import type { ServiceMethods } from '../rpc.ts'

/** The RPCs about machines as files. */
export function savedMethods(): Pick<
  ServiceMethods<typeof InstanceServiceDefinition>,
  'suspendInstance' | 'listSaved' | 'deleteSaved' | 'cloneInstance'
> {
  return {
    suspendInstance: { ...JOURNALED, handle: notBuilt },
    listSaved: { role: 'owner', onDaemonDeath: 'read', handle: notBuilt },
    deleteSaved: { ...JOURNALED, handle: notBuilt },
    cloneInstance: { ...JOURNALED, handle: notBuilt },
  }
}

const JOURNALED = { role: 'owner', onDaemonDeath: 'journaled' } as const

async function notBuilt(): Promise<never> {
  throw new AgentError('UNIMPLEMENTED', 'not built yet')
}
