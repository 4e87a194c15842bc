import type { GetNetworkResponse } from '../../../gen/microvm/agent/v1/introspection.ts'
import { introspectionCalls } from '../../clients.ts'
import type { Context } from '../../command.ts'
import { printRows } from '../../output/print.ts'
import type { Column } from '../../output/table.ts'

interface Row {
  readonly what: string
  readonly device: string
  readonly value: string
  readonly source: string
}

const COLUMNS: readonly Column<Row>[] = [
  { title: 'WHAT', text: ({ what }) => what },
  { title: 'DEVICE', text: ({ device }) => device },
  { title: 'VALUE', text: ({ value }) => value },
  { title: 'SET BY', text: ({ source }) => source, drop: 1 },
]

export async function run(context: Context): Promise<undefined> {
  const introspection = await introspectionCalls(context)
  await printRows(context, COLUMNS, networkRows(await introspection.getNetwork({})))
}

export function networkRows({
  interfaces,
  routes,
}: Pick<GetNetworkResponse, 'interfaces' | 'routes'>): Row[] {
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
