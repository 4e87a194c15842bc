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

/** Parses an event: `action@path`, then `KEY=VALUE`, with a NUL between them. undefined when it is no uevent of the kernel. */
export function parseUevent(text: string): Uevent | undefined {
  const [header = ''] = text.split('\0', 1)
  const at = header.indexOf('@')
  if (at <= 0) return undefined
  return {
    action: header.slice(0, at),
    devicePath: header.slice(at + 1),
    subsystem: valueBehind(text, '\0SUBSYSTEM='),
    deviceName: valueBehind(text, '\0DEVNAME='),
    interfaceName: valueBehind(text, '\0INTERFACE='),
    modalias: valueBehind(text, '\0MODALIAS='),
  }
}

/** What stands behind a key, which begins a line; empty when it is missing. */
function valueBehind(text: string, key: string): string {
  const found = text.indexOf(key)
  if (found === -1) return ''
  const start = found + key.length
  const end = text.indexOf('\0', start)
  return end === -1 ? text.slice(start) : text.slice(start, end)
}
