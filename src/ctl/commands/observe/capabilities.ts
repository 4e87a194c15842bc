import { type Capability, Capability_Kind } from '../../../gen/microvm/agent/v1/introspection.ts'
import { type Introspection, introspectionCalls } from '../../clients.ts'
import type { Context } from '../../command.ts'
import { enumName } from '../../output/enums.ts'
import { printRows } from '../../output/print.ts'
import type { Column } from '../../output/table.ts'

export type ShownCapability = Omit<Capability, 'kind'> & { readonly kind: string }

const KINDS: Readonly<Record<string, string>> = {
  RPC: 'call',
  STORAGE_DRIVER: 'storage',
  DEVICE_TYPE: 'device',
  KERNEL: 'kernel',
  TOOL: 'program',
  FEATURE: 'agent',
}

const COLUMNS: readonly Column<ShownCapability>[] = [
  { title: 'KIND', text: ({ kind }) => KINDS[kind] ?? '', drop: 2 },
  { title: 'NAME', text: ({ name }) => name },
  { title: 'THERE', text: ({ enabled }) => (enabled ? 'yes' : 'no') },
  { title: 'WHY', text: ({ detail, enabled, reason }) => (enabled ? detail : reason), drop: 1 },
]

export async function run(context: Context): Promise<undefined> {
  const introspection = await introspectionCalls(context)
  const { capabilities } = await shownCapabilities(introspection)
  const isShown = ({ enabled }: ShownCapability) => !(enabled && context.values.flag('missing'))
  await printRows(context, COLUMNS, capabilities.filter(isShown))
}

export async function shownCapabilities(
  introspection: Pick<Introspection, 'getCapabilities'>,
): Promise<{ readonly capabilities: readonly ShownCapability[] }> {
  const { capabilities } = await introspection.getCapabilities({})
  return {
    capabilities: capabilities.map((each) => ({ ...each, kind: enumName(Capability_Kind, each.kind) })),
  }
}
