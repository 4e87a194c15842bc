import { open } from 'node:fs/promises'
import { checkErrno, failed } from '../errors.ts'
import type { Native } from '../native.ts'

const DEVICE = '/dev/random'

/** _IOW('R', 3, int[2]): the number of unpredictable bits, the number of bytes, the bytes (random(4)). */
const RNDADDENTROPY = 0x4008_5203
const HEADER_BYTES = 8
/** _IO('R', 7): reseeds the kernel's generator at once. */
const RNDRESEEDCRNG = 0x5207
const ENODATA = 61

/** EPERM without CAP_SYS_ADMIN. */
export async function addEntropy(native: Native, data: Uint8Array): Promise<void> {
  const argument = Buffer.alloc(HEADER_BYTES + data.length)
  argument.writeInt32LE(data.length * 8, 0)
  argument.writeInt32LE(data.length, 4)
  argument.set(data, HEADER_BYTES)
  const device = await open(DEVICE, 'r+').catch(failed('open', DEVICE))
  try {
    checkErrno('add entropy to', DEVICE, await native.ioctl(device.fd, RNDADDENTROPY, argument))
    const reseeded = await native.ioctl(device.fd, RNDRESEEDCRNG, Buffer.alloc(0))
    // ENODATA: the generator has not been seeded yet, and its first seed will include these bytes.
    if (reseeded !== -ENODATA) checkErrno('reseed', DEVICE, reseeded)
  } finally {
    await device.close()
  }
}
