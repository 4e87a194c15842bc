/** One event of the kernel about a device (spec F.3). */
export interface Uevent {
  /** `add`, `remove`, `change`, … */
  readonly action: string
  /** Path below /sys, such as `/devices/pci0000:00/0000:00:02.0/virtio0/block/vda`. */
  readonly devicePath: string
  readonly subsystem: string
  /** Name below /dev; empty for what has no node. */
  readonly deviceName: string
  /** Name of a network interface; empty for anything else. */
  readonly interfaceName: string
  /** What modprobe finds the driver by; empty where there is none to be found. */
  readonly modalias: string
}

/**
 * Parses a datagram: `action@path`, then `KEY=VALUE`, each ended by NUL. undefined when it is no uevent of the
 * kernel or not UTF-8.
 */
export function parseUevent(datagram: Uint8Array): Uevent | undefined {
  const [header = '', ...lines] = decode(datagram).split('\0')
  const at = header.indexOf('@')
  if (at <= 0) return undefined
  const values = new Map(lines.map(keyAndValue))
  return {
    action: values.get('ACTION') ?? header.slice(0, at),
    devicePath: values.get('DEVPATH') ?? header.slice(at + 1),
    subsystem: values.get('SUBSYSTEM') ?? '',
    deviceName: values.get('DEVNAME') ?? '',
    interfaceName: values.get('INTERFACE') ?? '',
    modalias: values.get('MODALIAS') ?? '',
  }
}

const UTF_8 = new TextDecoder('utf-8', { fatal: true })

function decode(datagram: Uint8Array): string {
  try {
    return UTF_8.decode(datagram)
  } catch {
    // A name that is no text can be none that we wait for.
    return ''
  }
}

function keyAndValue(line: string): [string, string] {
  const equals = line.indexOf('=')
  return equals === -1 ? [line, ''] : [line.slice(0, equals), line.slice(equals + 1)]
}
