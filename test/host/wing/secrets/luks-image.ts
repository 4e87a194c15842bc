import { createCipheriv, createHash, pbkdf2Sync, randomBytes } from 'node:crypto'
import { truncateSync, writeFileSync } from 'node:fs'

const SECTOR = 512
const [KEY, STRIPES, ITERATIONS, PAYLOAD] = [64, 4000, 1000, 4096]
const [ACTIVE, INACTIVE] = [0x00ac_71f3, 0xdead]

/**
 * Makes a LUKS image ("LUKS1 On-Disk Format Specification", version 1.2.3), which one secret opens, of aes-xts-plain64 and sha256.
 * QEMU takes seconds to make one, and fails on a busy host: it measures how fast it is.
 */
export function luksImage(path: string, sizeMib: number, secret: string): string {
  const [master, digestSalt, salt] = [randomBytes(KEY), randomBytes(32), randomBytes(32)]
  const derive = (from: string | Buffer, by: Buffer, bytes: number) =>
    pbkdf2Sync(from, by, ITERATIONS, bytes, 'sha256')
  const header = Buffer.alloc(PAYLOAD * SECTOR)
  header.write('LUKS\xba\xbe\0\x01', 0, 'latin1')
  for (const [at, text] of [
    [8, 'aes'],
    [40, 'xts-plain64'],
    [72, 'sha256'],
    [168, '6b3f0c62-3d1e-4f0a-9a55-0f4f8f0c2d11'],
  ] as const)
    header.write(text, at)
  header.writeUInt32BE(PAYLOAD, 104)
  header.writeUInt32BE(KEY, 108)
  derive(master, digestSalt, 20).copy(header, 112)
  digestSalt.copy(header, 132)
  header.writeUInt32BE(ITERATIONS, 164)
  for (let slot = 0; slot < 8; slot++) {
    const at = 208 + slot * 48
    header.writeUInt32BE(slot === 0 ? ACTIVE : INACTIVE, at)
    header.writeUInt32BE(ITERATIONS, at + 4)
    salt.copy(header, at + 8)
    header.writeUInt32BE(8 + slot * 504, at + 40)
    header.writeUInt32BE(STRIPES, at + 44)
  }
  encrypted(derive(secret, salt, KEY), split(master)).copy(header, 8 * SECTOR)
  writeFileSync(path, header)
  truncateSync(path, header.length + sizeMib * 2 ** 20)
  return path
}

/** The key in as many parts as there are stripes, of which each is needed. */
function split(key: Buffer): Buffer {
  const parts: Buffer[] = []
  let mixed = Buffer.alloc(KEY)
  while (parts.length < STRIPES - 1) {
    const part = randomBytes(KEY)
    parts.push(part)
    mixed = diffused(xor(mixed, part))
  }
  return Buffer.concat([...parts, xor(mixed, key)])
}

function xor(one: Buffer, other: Buffer): Buffer {
  return Buffer.from(one.map((byte, index) => byte ^ other.readUInt8(index)))
}

function diffused(bytes: Buffer) {
  const parts = [0, 1].map((index) =>
    createHash('sha256')
      .update(Buffer.from([0, 0, 0, index]))
      .update(bytes.subarray(index * 32, index * 32 + 32))
      .digest(),
  )
  return Buffer.concat(parts)
}

function encrypted(key: Buffer, bytes: Buffer): Buffer {
  const sectors = Array.from({ length: bytes.length / SECTOR }, (_, index) => {
    const number = Buffer.alloc(16)
    number.writeUInt32LE(index)
    const cipher = createCipheriv('aes-256-xts', key, number)
    return cipher.update(bytes.subarray(index * SECTOR, (index + 1) * SECTOR))
  })
  return Buffer.concat(sectors)
}
