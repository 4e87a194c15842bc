import { AgentError } from '../../base/errors.ts'
import { ADDRESS_BITS } from '../../base/ip-address.ts'
import { removeIfPresent, type UndoList, undoOnFailure } from '../../base/undo.ts'
import type { Route as ApiRoute } from '../../gen/types.ts'
import type { Failures, Network, Route, RoutePut } from '../../os/network/network.ts'
import { checkAddressOf, checkFamily, checkNumber, checkPrefix } from './check-fields.ts'
import type { NetworkContext } from './context.ts'
import { inBatches } from './in-batches.ts'
import { listRoutes } from './list.ts'

const MADE_BY_KERNEL = 2
const ONLINK = 4

/**
 * A new route replaces one to the same destination, unless the kernel made that one. Throws INVALID_ARGUMENT for a
 * wrong field, INTERNAL `Link not found (Name: …)`, or the kernel's error after restoring the routes.
 */
export function updateRoutes(
  dependencies: NetworkContext,
  routes: readonly ApiRoute[],
  signal: AbortSignal,
): Promise<ApiRoute[]> {
  return dependencies.queues.routes.run(() => addRoutes(dependencies, routes), signal)
}

async function addRoutes(
  { os, log, record }: NetworkContext,
  routes: readonly ApiRoute[],
): Promise<ApiRoute[]> {
  const { network } = os
  const requests = routes.map((route, index) => checkRoute(`routes[${index}]`, route))
  const wanted = withLinks(network, requests)
  const ordered = [...wanted.filter(isDirect), ...wanted.filter((route) => !isDirect(route))]
  const steps = missingSteps(ordered, network.routes())
  await undoOnFailure(log, async (onFailure) => {
    await inBatches(steps, (batch) => addBatch(network, batch, onFailure))
  })
  record.note(
    'rpc',
    requests.map(({ device, route }) => ({
      kind: 'route',
      subject: `${route.destination.address}/${route.destination.prefixLength}`,
      value: `${route.gateway === undefined ? '' : `via ${route.gateway} `}dev ${device}`,
    })),
  )
  return listRoutes(network)
}

/** Throws INTERNAL for a missing link. */
function withLinks(network: Network, requests: readonly RouteRequest[]): readonly Route[] {
  const links = new Map(network.links().map(({ name, index }) => [name, index]))
  return requests.map(({ device, route }) => {
    const linkIndex = links.get(device)
    if (linkIndex === undefined)
      throw new AgentError('INTERNAL', `Link not found (Name: ${device})`, { fault: 'caller' })
    return { ...route, linkIndex }
  })
}

interface Step extends RoutePut {
  readonly replaced: Route | undefined
}

function missingSteps(wanted: readonly Route[], routes: readonly Route[]): readonly Step[] {
  const present = Map.groupBy(routes, destinationKey)
  return wanted.flatMap((route) => {
    const key = destinationKey(route)
    const rivals = present.get(key) ?? []
    if (rivals.some((other) => isEquivalent(other, route))) return []
    // The kernel replaces the first route; a route that is put before the kernel's own becomes the first.
    const isKernels = rivals[0]?.protocol === MADE_BY_KERNEL
    const replaced = isKernels ? undefined : rivals[0]
    present.set(key, [route, ...rivals.filter((other) => other !== replaced)])
    return [{ route, replaced, place: isKernels ? 'first' : 'instead' }]
  })
}

/** Throws the first error; other routes of the batch may have been added, and have their undo. */
function addBatch(network: Network, batch: readonly Step[], onFailure: UndoList): void {
  const failures = putRoutes(network, batch, onFailure)
  let refused: AgentError | undefined
  for (const [index, step] of batch.entries()) {
    const failure = failures[index]
    if (failure === undefined) addUndo(network, step, onFailure)
    else if (failure.errno !== 'EEXIST') {
      refused ??= new AgentError('INTERNAL', `Failed to add ${ipVersion(step.route)} route`, {
        cause: failure,
      })
    }
  }
  if (refused !== undefined) throw refused
}

/** When the kernel's answers are lost (ENOBUFS), every route of the batch gets an undo. */
function putRoutes(network: Network, batch: readonly Step[], onFailure: UndoList): Failures {
  try {
    return network.putRoutes(batch)
  } catch (error) {
    for (const step of batch) addUndo(network, step, onFailure)
    throw error
  }
}

function addUndo(network: Network, { route, replaced }: Step, onFailure: UndoList): void {
  onFailure.add(`route ${destinationKey(route)}`, async () => {
    if (replaced === undefined) await removeIfPresent('ESRCH', () => network.removeRoute(route))
    else network.replaceRoute(replaced)
  })
}

function isEquivalent(present: Route, wanted: Route): boolean {
  const same = present.gateway === wanted.gateway && present.linkIndex === wanted.linkIndex
  const sameSource =
    wanted.preferredSource === undefined
      ? present.protocol === MADE_BY_KERNEL || present.preferredSource === undefined
      : present.preferredSource === wanted.preferredSource
  return (
    same && sameSource && present.mtu === wanted.mtu && (present.flags & ONLINK) === (wanted.flags & ONLINK)
  )
}

/** The kernel keeps only one route with the same key, unless told otherwise. */
function destinationKey({ family, destination, source, priority }: Route): string {
  const rank = priority ?? (family === 'ipv4' ? 0 : 1024)
  const from = source === undefined ? '' : ` from ${source.address}/${source.prefixLength}`
  return `${family} ${destination.address}/${destination.prefixLength}${from} ${rank}`
}

function isDirect({ gateway }: Route): boolean {
  return gateway === undefined
}

function ipVersion({ family }: Route): string {
  return family === 'ipv4' ? 'IP v4' : 'IP v6'
}

interface RouteRequest {
  readonly device: string
  readonly route: Omit<Route, 'linkIndex'>
}

const MADE_AT_BOOT = 3
/** RTNH_F_PERVASIVE and ONLINK. The kernel only reports the other bits of a next hop, and refuses to set them. */
const SETTABLE_FLAGS = 0x6
const MAX_U8 = 0xff

/** `field` names the route in errors. Throws INVALID_ARGUMENT. */
function checkRoute(field: string, route: ApiRoute): RouteRequest {
  const family = checkFamily(`${field}.family`, route.family)
  const destination = checkPrefix(
    family,
    `${field}.dest`,
    route.dest === '' ? defaultDestination(family) : route.dest,
  )
  const whole = destination.prefixLength === ADDRESS_BITS[family]
  const isUnspecified = destination.address === '0.0.0.0' || destination.address === '::'
  const source = route.source === '' ? undefined : checkPrefix(family, `${field}.source`, route.source)
  return {
    device: route.device,
    route: {
      family,
      // ListRoutes writes the destination of a default route as an address alone.
      destination: whole && isUnspecified ? { ...destination, prefixLength: 0 } : destination,
      ...(route.gateway === '' ? {} : { gateway: checkAddressOf(family, `${field}.gateway`, route.gateway) }),
      ...(source === undefined ? {} : sourceOf(source, ADDRESS_BITS[family])),
      scope: checkNumber(`${field}.scope`, route.scope, MAX_U8),
      protocol: MADE_AT_BOOT,
      ...(route.mtu === 0 ? {} : { mtu: route.mtu }),
      flags: route.flags & SETTABLE_FLAGS,
    },
  }
}

/** A full address is the preferred source of connections; a shorter prefix limits the route to packets from it. */
function sourceOf(
  source: NonNullable<Route['source']>,
  bits: number,
): Pick<Route, 'source' | 'preferredSource'> {
  return source.prefixLength === bits ? { preferredSource: source.address } : { source }
}

function defaultDestination(family: Route['family']): string {
  return family === 'ipv4' ? '0.0.0.0/0' : '::/0'
}
