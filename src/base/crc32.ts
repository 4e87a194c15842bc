const POLYNOMIAL = 0xedb88320

/** By byte: its own checksum. */
const TABLE = new Uint32Array(256)
for (let byte = 0; byte < TABLE.length; byte += 1) {
  let sum = byte
  for (let bit = 0; bit < 8; bit += 1) sum = sum & 1 ? (sum >>> 1) ^ POLYNOMIAL : sum >>> 1
  TABLE[byte] = sum
}

/**
 * The checksum of zlib and PNG (ITU-T V.42), of what follows bytes whose checksum is `before`. node:zlib has the same, but
 * loads Node's streams, which takes 2 ms of each start of the agent.
 */
export function crc32(bytes: Uint8Array, before = 0): number {
  let sum = ~before
  for (let at = 0; at < bytes.length; at += 1)
    sum = (sum >>> 8) ^ (TABLE[(sum ^ (bytes[at] ?? 0)) & 0xff] ?? 0)
  return ~sum >>> 0
}
