import { execFileSync } from 'node:child_process'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { controlFileSystem } from '../../../src/os/devices/volumes/control.ts'
import { realNative } from '../../support/os/real-native.ts'
import { temporaryFolder } from '../../support/temporary-folder.ts'

describe('controlFileSystem', () => {
  it('does not wait for a writer where a fifo is the mount point', async () => {
    const native = await realNative()
    const folder = temporaryFolder()
    const fifo = join(folder, 'fifo')
    execFileSync('mkfifo', [fifo])
    const control = { call: 'look at', request: 0, argument: Buffer.alloc(0) }
    await expect(controlFileSystem(native, fifo, control)).rejects.toThrow(`look at ${fifo}: ENOTTY`)
  })
})
