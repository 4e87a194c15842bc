/** A device of a command line of QEMU: its driver, its place, and its other properties as texts. */
export interface CommandLineDevice {
  readonly name: string
  readonly properties: Readonly<Record<string, string>>
}

/** Names that each writer of a command line chooses itself. */
const OWN_NAMES = ['id', 'drive', 'chardev', 'rng', 'netdev', 'iothread', 'backend']

/** The devices of QEMU's arguments, in the form `driver,property=value` or JSON, with PCI buses named `pci.NUMBER`. */
export function qemuDevices(words: readonly string[]): readonly CommandLineDevice[] {
  const raw = words.flatMap((word, index) => (words[index - 1] === '-device' ? [fieldsOf(word)] : []))
  const buses = new Map(
    raw.flatMap(({ chassis, chassis_nr: number, id }) => {
      const bus = chassis ?? number
      return bus === undefined || id === undefined ? [] : [[id, `pci.${bus}`] as const]
    }),
  )
  return raw.map(({ addr, bus = '', driver = '', ...rest }) => {
    const own = Object.entries(rest).filter(([key]) => !OWN_NAMES.includes(key))
    const place = `${buses.get(bus) ?? bus.replace(/^name-/, '').replace('usb0', 'usb')}${addr === undefined ? '' : ` ${addressOf(addr)}`}`
    const numbers = ['unit', 'scsi-id', 'nr', ...(driver.startsWith('usb-') ? ['port'] : [])]
    const number = numbers.map((key) => rest[key]).find((value) => value !== undefined)
    return { name: `${driver} ${place} ${number ?? ''}`.trim(), properties: Object.fromEntries(own) }
  })
}

function fieldsOf(word: string): Readonly<Record<string, string>> {
  const entries = word.startsWith('{')
    ? Object.entries<unknown>(JSON.parse(word))
    : `driver=${word}`.split(',').map((pair): [string, unknown] => {
        const at = pair.indexOf('=')
        return [pair.slice(0, at), pair.slice(at + 1)]
      })
  const text = (value: unknown) => (value === true ? 'on' : value === false ? 'off' : String(value))
  return Object.fromEntries(entries.map(([key, value]) => [key, text(value)]))
}

/** `0x4`, `0x4.0` and `0x4.0x0` are the same. */
function addressOf(text: string): string {
  const [slot = 0, func = 0] = text.split('.').map(Number)
  return `${slot}.${func}`
}
