import type { Column } from '../../../client/output/table.ts'
import { bytesText } from '../../../client/output/text.ts'
import {
  type Device,
  Device_Kind,
  type GetNetworkResponse,
  type Mount,
  type Storage,
} from '../../../gen/microvm/agent/v1/introspection.ts'
import { type Introspection, introspectionCalls } from '../../clients.ts'
import type { Context } from '../../command.ts'
import { enumName } from '../../output/enums.ts'
import { printRows } from '../../output/print.ts'

const STORAGE_COLUMNS: readonly Column<Storage>[] = [
  { title: 'MOUNT POINT', text: ({ mountPoint }) => mountPoint },
  { title: 'DRIVER', text: ({ driver }) => driver },
  { title: 'SOURCE', text: ({ device, source }) => (device === '' ? source : device), drop: 2 },
  { title: 'STATE', text: ({ state }) => state, drop: 3 },
  { title: 'USES', text: ({ references }) => String(references), right: true, drop: 1 },
  { title: 'HELD BY', text: ({ holders }) => holders.join(' ') },
]

const MOUNT_COLUMNS: readonly Column<Mount>[] = [
  { title: 'MOUNT POINT', text: ({ mountPoint }) => mountPoint },
  { title: 'TYPE', text: ({ type }) => type },
  { title: 'ACCESS', text: ({ readOnly }) => (readOnly ? 'ro' : 'rw'), drop: 2 },
  { title: 'SOURCE', text: ({ source }) => source, drop: 1 },
]

export async function runMounts(context: Context): Promise<undefined> {
  const introspection = await introspectionCalls(context)
  const { mounts, storages } = await introspection.listMounts({})
  if (context.values.flag('all')) await printRows(context, MOUNT_COLUMNS, mounts)
  else await printRows(context, STORAGE_COLUMNS, storages)
}

interface NetworkRow {
  readonly what: string
  readonly device: string
  readonly value: string
  readonly source: string
}

const NETWORK_COLUMNS: readonly Column<NetworkRow>[] = [
  { title: 'WHAT', text: ({ what }) => what },
  { title: 'DEVICE', text: ({ device }) => device },
  { title: 'VALUE', text: ({ value }) => value },
  { title: 'SET BY', text: ({ source }) => source, drop: 1 },
]

export async function runNet(context: Context): Promise<undefined> {
  const introspection = await introspectionCalls(context)
  await printRows(context, NETWORK_COLUMNS, networkRows(await introspection.getNetwork({})))
}

export function networkRows({
  interfaces,
  routes,
}: Pick<GetNetworkResponse, 'interfaces' | 'routes'>): NetworkRow[] {
  const links = interfaces.flatMap(({ addresses, hardwareAddress, isUp, mtu, name, source }) => [
    { what: 'link', device: name, value: `${hardwareAddress} mtu ${mtu} ${isUp ? 'up' : 'down'}`, source },
    ...addresses.map((each) => ({ what: 'address', device: name, value: each.address, source: each.source })),
  ])
  const ways = routes.map(({ destination, device, gateway, source }) => {
    const to = destination === '' ? 'default' : destination
    return { what: 'route', device, value: gateway === '' ? to : `${to} via ${gateway}`, source }
  })
  return [...links, ...ways]
}

export type ShownDevice = Omit<Device, 'kind'> & { readonly kind: string }

const DEVICE_COLUMNS: readonly Column<ShownDevice>[] = [
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

export async function runDevices(context: Context): Promise<undefined> {
  const introspection = await introspectionCalls(context)
  const { devices } = await shownDevices(introspection)
  await printRows(context, DEVICE_COLUMNS, devices)
}

export async function shownDevices(
  introspection: Pick<Introspection, 'listDevices'>,
): Promise<{ readonly devices: readonly ShownDevice[] }> {
  const { devices } = await introspection.listDevices({})
  return { devices: devices.map((each) => ({ ...each, kind: enumName(Device_Kind, each.kind) })) }
}
