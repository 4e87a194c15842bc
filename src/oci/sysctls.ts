import { AgentError } from '../base/errors.ts'

/** Sysctls by who sets them. */
export interface SplitSysctls {
  /** Set by the runtime inside the container. */
  readonly container: { readonly [key: string]: string }
  /** Set by the agent in the guest: files below /proc/sys and their values. */
  readonly guest: readonly { readonly path: string; readonly value: string }[]
}

/**
 * Takes the `net.*` sysctls out of a spec (behaviour spec, section D.5): containers share the guest's network, and
 * a runtime refuses to set these for a container without a network namespace of its own. Throws INVALID_ARGUMENT
 * for a name that would lead out of /proc/sys/net.
 */
export function splitSysctls(sysctls: { readonly [key: string]: string }, ownNetwork: boolean): SplitSysctls {
  const container: { [key: string]: string } = {}
  const guest: { path: string; value: string }[] = []
  for (const [key, value] of Object.entries(sysctls)) {
    if (ownNetwork || !/^net[./]/.test(key)) container[key] = value
    else guest.push({ path: procPath(key), value })
  }
  return { container, guest }
}

/** As sysctl(8) reads names: whichever of `.` and `/` comes first separates, the other is part of a name. */
function procPath(key: string): string {
  const names = key.startsWith('net/')
    ? key.split('/')
    : key.split('.').map((name) => name.replaceAll('/', '.'))
  if (names.some((name) => name === '' || name === '.' || name === '..')) {
    throw new AgentError('INVALID_ARGUMENT', `invalid sysctl name '${key}'`)
  }
  return `/proc/sys/${names.join('/')}`
}
