import { describe, expect, it } from 'vitest'
import { hostTime } from '../../../src/os/devices/host-time.ts'

describe('hostTime', () => {
  it('is unknown where no device tells it', async () => {
    // A build machine has neither device, or one that refuses.
    expect(await hostTime({ ioctl: async () => -22 })).toBeUndefined()
  })
})
