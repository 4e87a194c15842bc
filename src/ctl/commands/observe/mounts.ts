import type { Mount, Storage } from '../../../gen/microvm/agent/v1/introspection.ts'
import { introspectionCalls } from '../../clients.ts'
import type { Context } from '../../command.ts'
import { printRows } from '../../output/print.ts'
import type { Column } from '../../output/table.ts'

const STORAGES: readonly Column<Storage>[] = [
  { title: 'MOUNT POINT', text: ({ mountPoint }) => mountPoint },
  { title: 'DRIVER', text: ({ driver }) => driver },
  { title: 'SOURCE', text: ({ device, source }) => (device === '' ? source : device), drop: 2 },
  { title: 'STATE', text: ({ state }) => state, drop: 3 },
  { title: 'USES', text: ({ references }) => String(references), right: true, drop: 1 },
  { title: 'HELD BY', text: ({ holders }) => holders.join(' ') },
]

const MOUNTS: readonly Column<Mount>[] = [
  { title: 'MOUNT POINT', text: ({ mountPoint }) => mountPoint },
  { title: 'TYPE', text: ({ type }) => type },
  { title: 'ACCESS', text: ({ readOnly }) => (readOnly ? 'ro' : 'rw'), drop: 2 },
  { title: 'SOURCE', text: ({ source }) => source, drop: 1 },
]

export async function run(context: Context): Promise<undefined> {
  const introspection = await introspectionCalls(context)
  const { mounts, storages } = await introspection.listMounts({})
  if (context.values.flag('all')) await printRows(context, MOUNTS, mounts)
  else await printRows(context, STORAGES, storages)
}
