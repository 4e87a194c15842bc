import { type Device, Device_Kind } from '../../../gen/microvm/agent/v1/introspection.ts'
import { introspectionCalls } from '../../clients.ts'
import type { Context } from '../../command.ts'
import { printRows } from '../../output/print.ts'
import type { Column } from '../../output/table.ts'
import { bytesText } from '../../output/text.ts'

const KINDS: Readonly<Record<number, string>> = {
  [Device_Kind.BLOCK]: 'disk',
  [Device_Kind.NETWORK]: 'network',
  [Device_Kind.PCI]: 'pci',
}

const COLUMNS: readonly Column<Device>[] = [
  { title: 'KIND', text: ({ kind }) => KINDS[kind] ?? '' },
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

/** `agent-ctl devices`. */
export async function run(context: Context): Promise<undefined> {
  const introspection = await introspectionCalls(context)
  const { devices } = await introspection.listDevices({})
  await printRows(context, COLUMNS, devices)
}
