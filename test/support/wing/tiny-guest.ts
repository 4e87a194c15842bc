import { writeFileSync } from 'node:fs'
import { join } from 'node:path'

const POWER_OFF = [0xba, 0x04, 0x06, 0x00, 0x00, 0x66, 0xb8, 0x00, 0x20, 0x66, 0xef] as const
/** Counts to 2^27: QEMU that ends at once may lose its last event. */
const WAIT = [0xb9, 0x00, 0x00, 0x00, 0x08, 0x49, 0x75, 0xfd] as const

/** Writes the text at the address, up to its zero, to the first serial port. */
const WRITE = (address: number) =>
  [
    ...[0xbe, address % 256, 0x00, 0x10, 0x00, 0x66, 0xba, 0xf8, 0x03],
    ...[0xac, 0x84, 0xc0, 0x74, 0x03, 0xee, 0xeb, 0xf8],
  ] as const

/** x86 code that runs in 32-bit protected mode, and then halts. */
const CODE = {
  idle: [],
  /** Writes 6 to the port of the reset control register. */
  reboot: [0xba, 0xf9, 0x0c, 0x00, 0x00, 0xb0, 0x06, 0xee],
  /** Writes 1 to the port of pvpanic, which machine i440fx has on its ISA bus. */
  panic: [0xba, 0x05, 0x05, 0x00, 0x00, 0xb0, 0x01, 0xee],
  /** Writes SLP_EN to q35's ACPI control register. */
  powerOff: POWER_OFF,
  /** Sets the year of the CMOS clock to 34 of its century, and powers off. */
  lastClock: [0xb0, 0x09, 0xe6, 0x70, 0xb0, 0x34, 0xe6, 0x71, ...WAIT, ...POWER_OFF],
  /** Writes `x` to the first serial port for ever. */
  flood: [0x66, 0xba, 0xf8, 0x03, 0xb0, 0x78, 0xee, 0xeb, 0xfd],
  /** Counts in memory for ever, and writes each number, modulo 256, to the first serial port. */
  count: [
    ...[0xfe, 0x05, 0x00, 0x00, 0x20, 0x00],
    // The port takes a byte once bit 5 of its line status is set.
    ...[0x66, 0xba, 0xfd, 0x03, 0xec, 0xa8, 0x20, 0x74, 0xfb],
    ...[0x66, 0xba, 0xf8, 0x03, 0xa0, 0x00, 0x00, 0x20, 0x00, 0xee],
    ...[0xb9, 0x00, 0x10, 0x00, 0x00, 0x49, 0x75, 0xfd, 0xeb, 0xdd],
  ],
  /** Writes {@link TEXT}, which is behind the code, to the first serial port. */
  panicText: WRITE(0x35),
  /** The same, and powers off. */
  panicTextThenOff: [...WRITE(0x48), ...WAIT, ...POWER_OFF],
} as const

const TEXT =
  '[    1.0] Oops: int3: 0000 [#1]\n[    1.0] Kernel panic - not syncing: Attempted to kill init!\n\0'

const HALT = [0xfa, 0xf4, 0xeb, 0xfd]

const LOADED_AT = 0x10_0000
const HEADER_BYTES = 32
const MAGIC = 0x1bad_b002
const HAS_ADDRESSES = 0x1_0000

/** Writes a kernel that does one thing (Multiboot Specification 0.6.96, "OS image format"), and returns its path. */
export function tinyGuest(folder: string, does: keyof typeof CODE): string {
  const entry = LOADED_AT + HEADER_BYTES
  const checksum = (2 ** 32 - MAGIC - HAS_ADDRESSES) >>> 0
  const fields = [MAGIC, HAS_ADDRESSES, checksum, LOADED_AT, LOADED_AT, 0, 0, entry]
  const header = Buffer.alloc(HEADER_BYTES)
  for (const [index, field] of fields.entries()) header.writeUInt32LE(field, index * 4)
  const path = join(folder, `${does}.kernel`)
  const code = Buffer.from([...CODE[does], ...HALT])
  writeFileSync(path, Buffer.concat([header, code, Buffer.from(TEXT), Buffer.alloc(4096)]))
  return path
}
