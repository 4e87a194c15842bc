/** The guest's addresses of PCI devices, by the host's: `0000:1a:02.3` → `0000:01:00.0`. */
export type PciAddresses = ReadonlyMap<string, string>

const PREFIX = 'PCIDEVICE_'
const INFO_SUFFIX = '_INFO'
const ADDRESS = /\b[0-9a-f]{4}:[0-9a-f]{2}:[0-1][0-9a-f]\.[0-7]\b/gi

/**
 * Translates the host's PCI addresses in `PCIDEVICE_<RESOURCE>=<address>,…`, and in the keys of the JSON in
 * `PCIDEVICE_<RESOURCE>_INFO`, by which device plugins name a container's devices. Other
 * text and unknown addresses stay. The entries were checked: each has a name and `=`.
 */
export function withGuestPciAddresses(environment: readonly string[], addresses: PciAddresses): string[] {
  if (addresses.size === 0) return [...environment]
  return environment.map((entry) => {
    if (!entry.startsWith(PREFIX)) return entry
    const equals = entry.indexOf('=')
    const name = entry.slice(0, equals)
    const value = entry.slice(equals + 1)
    const translated = name.endsWith(INFO_SUFFIX)
      ? translateKeys(value, addresses)
      : translateList(value, addresses)
    return `${name}=${translated}`
  })
}

function translateList(value: string, addresses: PciAddresses): string {
  return value
    .split(',')
    .map((item) => addresses.get(item.toLowerCase()) ?? item)
    .join(',')
}

/** Translates only keys: `"0000:1a:02.3": {…}`. The rest of the JSON stays as it is, including its spaces. */
function translateKeys(value: string, addresses: PciAddresses): string {
  return value.replace(/"([^"\\]*)"(?=\s*:)/g, (whole, key: string) => {
    return key.replace(ADDRESS, '') === '' ? `"${addresses.get(key.toLowerCase()) ?? key}"` : whole
  })
}
