import { type Capability, Capability_Kind } from '../../../gen/microvm/agent/v1/introspection.ts'
import { introspectionCalls } from '../../clients.ts'
import type { Context } from '../../command.ts'
import { printRows } from '../../output/print.ts'
import type { Column } from '../../output/table.ts'

const KINDS: Readonly<Record<number, string>> = {
  [Capability_Kind.RPC]: 'call',
  [Capability_Kind.STORAGE_DRIVER]: 'storage',
  [Capability_Kind.DEVICE_TYPE]: 'device',
  [Capability_Kind.KERNEL]: 'kernel',
  [Capability_Kind.TOOL]: 'program',
  [Capability_Kind.FEATURE]: 'agent',
}

const COLUMNS: readonly Column<Capability>[] = [
  { title: 'KIND', text: ({ kind }) => KINDS[kind] ?? '', drop: 2 },
  { title: 'NAME', text: ({ name }) => name },
  { title: 'THERE', text: ({ enabled }) => (enabled ? 'yes' : 'no') },
  { title: 'WHY', text: ({ detail, enabled, reason }) => (enabled ? detail : reason), drop: 1 },
]

/** `agent-ctl capabilities [--missing]`. */
export async function run(context: Context): Promise<undefined> {
  const introspection = await introspectionCalls(context)
  const { capabilities } = await introspection.getCapabilities({})
  const isShown = ({ enabled }: Capability) => !(enabled && context.values.flag('missing'))
  await printRows(context, COLUMNS, capabilities.filter(isShown))
}
