import { type Device, Device_Kind } from '../../../gen/microvm/agent/v1/introspection.ts'
import { type Introspection, introspectionCalls } from '../../clients.ts'
import type { Context } from '../../command.ts'
import { enumName } from '../../output/enums.ts'
import { printRows } from '../../output/print.ts'
import type { Column } from '../../output/table.ts'
import { bytesText } from '../../output/text.ts'

export type ShownDevice = Omit<Device, 'kind'> & { readonly kind: string }

const COLUMNS: readonly Column<ShownDevice>[] = [
  { title: 'KIND', text: ({ kind }) => (kind === 'BLOCK' ? 'disk' : kind.toLowerCase()) },
  { title: 'NAME', text: ({ name }) => name },
  { title: 'DRIVER', text: ({ driver }) => (driver === '' ? '–' : driver) },
  { title: 'NUMBERS', text: ({ numbers }) => numbers, drop: 3 },
  {
    title: 'SIZE',
    text: ({ sizeBytes }) => (sizeBytes === 0n ? '' : bytesText(sizeBytes)),
    right: true,
    drop: 1,
  },
  { title: 'IDENTITY', text: ({ identity }) => identity, drop: 2 },
  { title: 'PATH', text: ({ path }) => path, drop: 4 },
]

export async function run(context: Context): Promise<undefined> {
  const introspection = await introspectionCalls(context)
  const { devices } = await shownDevices(introspection)
  await printRows(context, COLUMNS, devices)
}

export async function shownDevices(
  introspection: Pick<Introspection, 'listDevices'>,
): Promise<{ readonly devices: readonly ShownDevice[] }> {
  const { devices } = await introspection.listDevices({})
  return { devices: devices.map((each) => ({ ...each, kind: enumName(Device_Kind, each.kind) })) }
}
