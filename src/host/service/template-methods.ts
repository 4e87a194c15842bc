import { AgentError } from '../../base/errors.ts'
import type { InstanceServiceDefinition } from '../../gen/microvm/instance/v1/instance.ts'
import { TEMPLATE_NAME } from '../instance/moves.ts'
import type { Templates } from '../migration/templates.ts'
import type { ServiceMethods } from './rpc.ts'

/** The RPCs about templates. They are of no tenant. */
export function templateMethods(
  templates: Templates | undefined,
): Pick<
  ServiceMethods<typeof InstanceServiceDefinition>,
  'ensureTemplate' | 'listTemplates' | 'removeTemplate'
> {
  const present = () => {
    if (templates !== undefined) return templates
    throw new AgentError('UNIMPLEMENTED', 'no templates are kept here')
  }
  return {
    ensureTemplate: {
      ...{ role: 'admin', onDaemonDeath: 'idempotent' },
      handle: async ({ specification }) => {
        if (specification === undefined) throw invalid('specification: missing')
        return await present().ensure(specification)
      },
    },
    listTemplates: {
      ...{ role: 'admin', onDaemonDeath: 'read' },
      handle: async () => ({ templates: [...(await present().list())] }),
    },
    // Journaled, because what is gone is not found.
    removeTemplate: {
      ...{ role: 'admin', onDaemonDeath: 'journaled' },
      frees: () => true,
      handle: async ({ name }, { isRepeated = false }) => {
        if (!TEMPLATE_NAME.test(name))
          throw invalid(`name: ${JSON.stringify(name.slice(0, 64))}, want that of a template`)
        await present()
          .remove(name)
          .catch((error) => {
            if (!isRepeated || !(error instanceof AgentError) || error.code !== 'NOT_FOUND') throw error
          })
        return {}
      },
    },
  }
}

function invalid(message: string): AgentError {
  return new AgentError('INVALID_ARGUMENT', message)
}
