import { LinuxResources } from '../gen/oci.ts'

/** The limits of a container after an update: what the update leaves empty stays as it was; lists are replaced whole. */
export function mergeResources(stored: LinuxResources | undefined, update: LinuxResources): LinuxResources {
  const before = stored ?? LinuxResources.create()
  return {
    ...overlaid(before, update),
    Memory: overlaid(before.Memory, update.Memory),
    CPU: overlaid(before.CPU, update.CPU),
    Pids: overlaid(before.Pids, update.Pids),
    BlockIO: overlaid(before.BlockIO, update.BlockIO),
    Network: overlaid(before.Network, update.Network),
  }
}

function overlaid<Part extends object | undefined>(before: Part, update: Part): Part {
  if (before === undefined || update === undefined) return update ?? before
  const given = Object.entries(update).filter(([, value]) => !isEmpty(value))
  return { ...before, ...Object.fromEntries(given) }
}

/** Proto3 does not tell an empty field from an absent one. */
function isEmpty(value: unknown): boolean {
  return Array.isArray(value) ? value.length === 0 : value === undefined || !value
}
