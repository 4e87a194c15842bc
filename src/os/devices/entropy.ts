import { constants } from 'node:fs'
import { setTimeout as delay } from 'node:timers/promises'
import { checkErrno, failed, fromNodeError, kernelError } from '../errors.ts'
import { type FileHandle, open } from '../files/node-files.ts'
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

const HARDWARE = '/dev/hwrng'
/** The kernel and the driver keep up to 128 bytes of earlier reads, which are the same in all clones of a guest. */
const STALE_BYTES = 256
const RETRY_MS = 10

/** Fresh bytes of the host. Does not block a thread: the device answers EAGAIN until the host has. */
export async function hardwareRandom(bytes: number, signal: AbortSignal): Promise<Uint8Array> {
  const device = await open(HARDWARE, constants.O_RDONLY | constants.O_NONBLOCK).catch(
    failed('open', HARDWARE),
  )
  try {
    const read = Buffer.alloc(STALE_BYTES + bytes)
    for (let length = 0; length < read.length; ) {
      const got = await readSome(device, read, length)
      if (got === 0 && signal.aborted) throw kernelError('read', HARDWARE, 'EAGAIN')
      if (got === 0) await delay(RETRY_MS)
      length += got
    }
    return read.subarray(STALE_BYTES)
  } finally {
    await device.close()
  }
}

async function readSome(device: FileHandle, into: Buffer, offset: number): Promise<number> {
  try {
    return (await device.read(into, offset, into.length - offset)).bytesRead
  } catch (error) {
    if (error instanceof Error && 'code' in error && error.code === 'EAGAIN') return 0
    throw fromNodeError('read', HARDWARE, error)
  }
}
