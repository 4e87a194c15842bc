import { ADDRESS_BITS } from '../../base/ip-address.ts'
import type { Route as ApiRoute } from '../../gen/types.ts'
import type { Route } from '../../os/network/network.ts'
import { checkAddressOf, checkFamily, checkNumber, checkPrefix } from './check-fields.ts'

export interface RouteRequest {
  readonly device: string
  readonly route: Omit<Route, 'linkIndex'>
}

const MADE_AT_BOOT = 3
/** RTNH_F_PERVASIVE and ONLINK. The kernel only reports the other bits of a next hop, and refuses to set them. */
const SETTABLE_FLAGS = 0x6
const MAX_U8 = 0xff

/** `field` names the route in errors. Throws INVALID_ARGUMENT. */
export function checkRoute(field: string, route: ApiRoute): RouteRequest {
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
