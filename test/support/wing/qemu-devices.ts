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

/** Options of the board, whose values are pairs of names and values. */
const BOARD_OPTIONS = ['-machine', '-cpu', '-smp', '-m', '-numa', '-uuid', '-rtc', '-smbios', '-global']

/** What QEMU's arguments say of the board, such as `-smp cores` with its value; numbers and sizes in one form. */
export function qemuBoard(words: readonly string[]): Readonly<Record<string, string>> {
  const pairs = words.flatMap((word, index) => {
    const option = words[index - 1] ?? ''
    return BOARD_OPTIONS.includes(option)
      ? word
          .split(',')
          .map((pair, place) => [option, place > 0 && !pair.includes('=') ? `${pair}=on` : pair] as const)
      : []
  })
  const entries = pairs.map(([option, pair]): [string, string] => {
    const at = pair.indexOf('=')
    if (at < 0) return option === '-m' ? ['-m size', mibOf(pair)] : [option, pair]
    const [name, value] = [pair.slice(0, at), pair.slice(at + 1)]
    if (option === '-numa' && name === 'cpus') return [`-numa cpus ${value}`, 'on']
    if (option === '-m' && name !== 'slots') return [`-m ${name}`, mibOf(value)]
    return [`${option} ${name}`, /^0x[0-9a-f]+$/.test(value) ? String(Number(value)) : value]
  })
  return Object.fromEntries(entries.flatMap(([name, value]) => eachCpu(name, value)))
}

function mibOf(size: string): string {
  return size.endsWith('k') ? `${Number.parseInt(size, 10) / 1024}` : `${Number.parseInt(size, 10)}`
}

/** A range of CPUs as its numbers. */
function eachCpu(name: string, value: string): readonly (readonly [string, string])[] {
  const [, first, last] = /^-numa cpus (\d+)-(\d+)$/.exec(name) ?? []
  if (first === undefined) return [[name, value]]
  return Array.from({ length: Number(last) - Number(first) + 1 }, (_, index) => [
    `-numa cpus ${Number(first) + index}`,
    value,
  ])
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
