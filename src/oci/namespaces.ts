import type { LinuxNamespace } from '../gen/oci.ts'

/** The namespaces that a container joins instead of getting its own. */
export interface SharedNamespaces {
  /** The sandbox's ipc and uts namespaces; undefined gives the container its own. */
  readonly ipc: string | undefined
  readonly uts: string | undefined
  /** The pid namespace to join; undefined makes a new one. */
  readonly pid: string | undefined
  /** Whether the guest uses cgroup v2, with which the container also gets a cgroup namespace. */
  readonly cgroup: boolean
}

/**
 * The sandbox's ipc and uts replace the host's paths, and there is exactly one pid entry. The runtime refuses duplicates,
 * so only the first entry of a kind counts.
 */
export function containerNamespaces(
  requested: readonly LinuxNamespace[],
  shared: SharedNamespaces,
): LinuxNamespace[] {
  const byKind = new Map<string, LinuxNamespace>()
  for (const namespace of requested) {
    if (!byKind.has(namespace.Type)) byKind.set(namespace.Type, replaced(namespace, shared))
  }
  byKind.set('pid', { Type: 'pid', Path: shared.pid ?? '' })
  if (shared.cgroup && !byKind.has('cgroup')) byKind.set('cgroup', { Type: 'cgroup', Path: '' })
  return [...byKind.values()]
}

function replaced(namespace: LinuxNamespace, shared: SharedNamespaces): LinuxNamespace {
  switch (namespace.Type) {
    case 'ipc':
      return { Type: 'ipc', Path: shared.ipc ?? '' }
    case 'uts':
      return { Type: 'uts', Path: shared.uts ?? '' }
    default:
      return namespace
  }
}
