import { AgentError, errnoOf } from '../../base/errors.ts'
import { UndoList } from '../../base/undo.ts'
import type { Route as ApiRoute } from '../../gen/types.ts'
import type { Failures, Network, Route, RoutePut } from '../../os/network/network.ts'
import type { NetworkDependencies } from './dependencies.ts'
import { inBatches } from './in-batches.ts'
import { listRoutes } from './list.ts'
import { checkRoute, type RouteRequest } from './route-request.ts'

const MADE_BY_KERNEL = 2
const ONLINK = 4

/**
 * UpdateRoutes (spec G.2): adds what is missing, those without a gateway first, and answers ListRoutes. A route that
 * is there already is left alone; one with the same destination takes the place of the old, but never of one that the
 * kernel made. Throws INVALID_ARGUMENT for a wrong field, INTERNAL `Link not found (Name: …)`, and the kernel's refusal;
 * the routes are those of before then.
 */
export function updateRoutes(
  dependencies: NetworkDependencies,
  routes: readonly ApiRoute[],
  signal: AbortSignal,
): Promise<ApiRoute[]> {
  return dependencies.queues.routes.run(() => addRoutes(dependencies, routes), signal)
}

async function addRoutes(
  { os, log, record }: NetworkDependencies,
  routes: readonly ApiRoute[],
): Promise<ApiRoute[]> {
  const { network } = os
  const requests = routes.map((route, index) => checkRoute(`routes[${index}]`, route))
  const wanted = withLinks(network, requests)
  const ordered = [...wanted.filter(isDirect), ...wanted.filter((route) => !isDirect(route))]
  const steps = missingSteps(ordered, network.routes())
  const onFailure = new UndoList(log)
  try {
    await inBatches(steps, (batch) => addBatch(network, batch, onFailure))
  } catch (error) {
    await onFailure.run()
    throw error
  }
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

/** Every link is looked for before anything is changed. */
function withLinks(network: Network, requests: readonly RouteRequest[]): readonly Route[] {
  const links = new Map(network.links().map(({ name, index }) => [name, index]))
  return requests.map(({ device, route }) => {
    const linkIndex = links.get(device)
    if (linkIndex === undefined) throw new AgentError('INTERNAL', `Link not found (Name: ${device})`)
    return { ...route, linkIndex }
  })
}

/** A route to be added, and the one whose place it takes. */
interface Step extends RoutePut {
  readonly replaced: Route | undefined
}

/** What is to be added to the routes that there are. */
function missingSteps(wanted: readonly Route[], routes: readonly Route[]): readonly Step[] {
  const present = Map.groupBy(routes, destinationKey)
  return wanted.flatMap((route) => {
    const key = destinationKey(route)
    const rivals = present.get(key) ?? []
    if (rivals.some((other) => isEquivalent(other, route))) return []
    // The kernel replaces the first one: that is ours again where ours was put before the kernel's own.
    const isKernels = rivals[0]?.protocol === MADE_BY_KERNEL
    const replaced = isKernels ? undefined : rivals[0]
    present.set(key, [route, ...rivals.filter((other) => other !== replaced)])
    return [{ route, replaced, place: isKernels ? 'first' : 'instead' }]
  })
}

/** Adds routes, and registers the undo of each. Throws the first failure; the others of the batch may be there. */
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

/** What the kernel answers. When its answers are lost (ENOBUFS), each route of the batch may be there. */
function putRoutes(network: Network, batch: readonly Step[], onFailure: UndoList): Failures {
  try {
    return network.putRoutes(batch)
  } catch (error) {
    for (const step of batch) addUndo(network, step, onFailure)
    throw error
  }
}

function addUndo(network: Network, { route, replaced }: Step, onFailure: UndoList): void {
  onFailure.add(`route ${destinationKey(route)}`, () => {
    if (replaced === undefined) removeIfPresent(network, route)
    else network.replaceRoute(replaced)
  })
}

function removeIfPresent(network: Network, route: Route): void {
  try {
    network.removeRoute(route)
  } catch (error) {
    if (errnoOf(error) !== 'ESRCH') throw error
  }
}

/** Whether a route that is there does what a wanted one would do. */
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

/** Routes with the same key are rivals: the kernel has one of them, unless told otherwise. */
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
