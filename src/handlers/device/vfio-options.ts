import { AgentError } from '../../base/errors.ts'
import type { Device } from '../../gen/agent.ts'
import { type PciPath, parsePciPath } from '../../hotplug/pci/pci-path.ts'

export interface VfioOption {
  /** `0000:1a:02.3`, in lower case. */
  readonly hostAddress: string
  readonly guestPath: PciPath
}

/** Parses `<host address>=<guest PCI path>`; `skipped` addresses have no path. Throws INVALID_ARGUMENT. */
export function parseVfioOptions({ options, containerPath }: Device): {
  readonly devices: readonly VfioOption[]
  readonly skipped: readonly string[]
} {
  const devices: VfioOption[] = []
  const skipped: string[] = []
  for (const option of options) {
    const [, address, path] = /^([0-9a-f]{4}:[0-9a-f]{2}:[01][0-9a-f]\.[0-7])=(.*)$/i.exec(option) ?? []
    if (address === undefined || path === undefined) {
      const text = `device ${containerPath}: Malformed VFIO PCI option: "${option}"`
      throw new AgentError('INVALID_ARGUMENT', text)
    }
    if (path === '') skipped.push(address)
    else devices.push({ hostAddress: address.toLowerCase(), guestPath: parsePciPath(path) })
  }
  return { devices, skipped }
}
