import { open } from 'node:fs/promises'
import { checkErrno, fromNodeError } from '../errors.ts'
import type { Native } from '../native.ts'

const DEVICE = '/dev/random'

/** _IOW('R', 3, int[2]): bits that count as unpredictable, bytes that follow, the bytes (random(4)). */
const RNDADDENTROPY = 0x4008_5203
const HEADER_BYTES = 8
/** _IO('R', 7): seeds at once what reads from the kernel's generator. */
const RNDRESEEDCRNG = 0x5207
const ENODATA = 61

/** Mixes bytes into the kernel's random numbers and seeds them anew. EPERM without CAP_SYS_ADMIN. */
export async function addEntropy(native: Native, data: Uint8Array): Promise<void> {
  const argument = Buffer.alloc(HEADER_BYTES + data.length)
  argument.writeInt32LE(data.length * 8, 0)
  argument.writeInt32LE(data.length, 4)
  argument.set(data, HEADER_BYTES)
  const device = await open(DEVICE, 'r+').catch((error) => {
    throw fromNodeError('open', DEVICE, error)
  })
  try {
    checkErrno('add entropy to', DEVICE, await native.ioctl(device.fd, RNDADDENTROPY, argument))
    const reseeded = await native.ioctl(device.fd, RNDRESEEDCRNG, Buffer.alloc(0))
    // Not seeded even once yet: the first seed will be made of what was added.
    if (reseeded !== -ENODATA) checkErrno('reseed', DEVICE, reseeded)
  } finally {
    await device.close()
  }
}
