import { introspectionCalls } from '../../clients.ts'
import { CommandFailure, type Context, EXIT } from '../../command.ts'
import { printJson, printPretty } from '../../output/print.ts'
import { shownProcesses } from './ps.ts'

export async function run(context: Context): Promise<undefined> {
  const containerId = context.values.argument('CONTAINER')
  const introspection = await introspectionCalls(context)
  const show = context.output === 'json' ? printJson : printPretty
  if (containerId === '') {
    const sandbox = await introspection.getSandbox({})
    const { containers } = await introspection.listContainers({})
    await show(context, { sandbox, containers })
    return
  }
  const { containers } = await introspection.listContainers({ containerId })
  const [container] = containers
  if (container === undefined) throw new CommandFailure(EXIT.failed, `container ${containerId}: not found`)
  const { processes } = await shownProcesses(introspection, containerId)
  const { exits } = await introspection.listExits({ containerId })
  const { storages } = await introspection.listMounts({})
  const held = storages.filter(({ holders }) => holders.includes(containerId))
  await show(context, { container, processes, storages: held, exits })
}
