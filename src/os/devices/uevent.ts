export interface Uevent {
  /** `add`, `remove`, `change`, … */
  readonly action: string
  /** Path below /sys, such as `/devices/pci0000:00/0000:00:02.0/virtio0/block/vda`. */
  readonly devicePath: string
  readonly subsystem: string
  /** Name below /dev; empty for a device without a node. */
  readonly deviceName: string
  /** Empty unless it is a network interface. */
  readonly interfaceName: string
  /** The alias by which modprobe finds the driver; empty for a device without one. */
  readonly modalias: string
  /** The machine's generation has changed: it was restored (a vmgenid driver that tells). */
  readonly isNewGeneration?: boolean
}

/** Parses `action@path` and `KEY=VALUE` pairs, separated by NULs; undefined when it is not a kernel uevent. */
export function parseUevent(text: string): Uevent | undefined {
  const [header = ''] = text.split('\0', 1)
  const at = header.indexOf('@')
  if (at <= 0) return undefined
  return {
    action: header.slice(0, at),
    devicePath: header.slice(at + 1),
    subsystem: valueAfter(text, '\0SUBSYSTEM='),
    deviceName: valueAfter(text, '\0DEVNAME='),
    interfaceName: valueAfter(text, '\0INTERFACE='),
    modalias: valueAfter(text, '\0MODALIAS='),
    ...(valueAfter(text, '\0NEW_VMGENID=') === '1' && { isNewGeneration: true }),
  }
}

/** `key` includes the NUL before it and the `=`. Empty when it is missing. */
function valueAfter(text: string, key: string): string {
  const found = text.indexOf(key)
  if (found === -1) return ''
  const start = found + key.length
  const end = text.indexOf('\0', start)
  return end === -1 ? text.slice(start) : text.slice(start, end)
}
