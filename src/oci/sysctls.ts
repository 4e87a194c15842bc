import { AgentError } from '../base/errors.ts'

/** Sysctls, split by who sets them. */
export interface SplitSysctls {
  /** Set by the runtime inside the container. */
  readonly container: { readonly [key: string]: string }
  /** Set by the agent in the guest: files below /proc/sys and their values. */
  readonly guest: readonly { readonly path: string; readonly value: string }[]
}

/**
 * Separates the `net.*` sysctls of a spec: containers share the guest's network, and a runtime refuses to set these for
 * a container without its own network namespace. Throws INVALID_ARGUMENT for a name that would point outside of
 * /proc/sys/net, or has a NUL byte, at which the kernel would end it.
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

/** The path of a sysctl. As in sysctl(8), the first of `.` and `/` is the separator, the other is part of a name. */
function procPath(key: string): string {
  const names = key.startsWith('net/')
    ? key.split('/')
    : key.split('.').map((name) => name.replaceAll('/', '.'))
  if (key.includes('\0') || names.some((name) => name === '' || name === '.' || name === '..')) {
    throw new AgentError('INVALID_ARGUMENT', `linux.sysctl: invalid name "${key}"`)
  }
  return `/proc/sys/${names.join('/')}`
}
