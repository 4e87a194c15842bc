import { closeSync, openSync } from 'node:fs'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import type { Native } from '../../src/os/native.ts'
import { realNative } from '../support/os/real-native.ts'

/** _IOR('R', 0, int), which needs no privileges. */
const RNDGETENTCNT = 0x8004_5200
const [EBADF, EINVAL] = [9, 22]

describe('ioctl of the addon', () => {
  let native: Native
  let fd: number

  beforeEach(async () => {
    native = await realNative()
    fd = openSync('/dev/random', 'r')
  })
  afterEach(() => closeSync(fd))

  it('lets the kernel write into the argument', async () => {
    const argument = Buffer.alloc(4, 0xff)
    expect(await native.ioctl(fd, RNDGETENTCNT, argument)).toBe(0)
    expect(argument.readInt32LE()).toBeGreaterThanOrEqual(0)
  })

  it('refuses an argument that is too short for the kernel', async () => {
    expect(await native.ioctl(fd, RNDGETENTCNT, Buffer.alloc(3))).toBe(-EINVAL)
  })

  it('returns the error of the kernel', async () => {
    expect(await native.ioctl(1_000_000, RNDGETENTCNT, Buffer.alloc(4))).toBe(-EBADF)
  })
})
