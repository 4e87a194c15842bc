/** What a disk's boot sector does after it has printed {@link BOOTED} to the first serial port. */
const THEN = {
  halt: [],
  /** Writes SLP_EN to the ACPI control register that SeaBIOS has set up on q35. */
  powerOff: [0xba, 0x04, 0x06, 0xb8, 0x00, 0x20, 0xef],
} as const

export const BOOTED = 'booted from the disk'

const LOADED_AT = 0x7c00
const SECTOR_BYTES = 512

/** x86 code in real mode: AL from [SI] to port 0x3f8 until it is 0. The text's address is bytes 6 and 7. */
const PRINT = [
  ...[0x31, 0xc0, 0x8e, 0xd8, 0xfc, 0xbe, 0x00, 0x00],
  ...[0xac, 0x84, 0xc0, 0x74, 0x06, 0xba, 0xf8, 0x03, 0xee, 0xeb, 0xf5],
]
const HALT = [0xf4, 0xeb, 0xfd]

/** A raw disk of so many bytes that BIOS firmware boots. */
export function bootDisk(sizeBytes: number, then: keyof typeof THEN = 'halt'): Buffer {
  const disk = Buffer.alloc(sizeBytes)
  const code = [...PRINT, ...THEN[then], ...HALT]
  Buffer.from(code).copy(disk)
  disk.writeUInt16LE(LOADED_AT + code.length, 6)
  disk.write(`${BOOTED}\r\n\0`, code.length, 'latin1')
  disk.writeUInt16LE(0xaa55, SECTOR_BYTES - 2)
  return disk
}
