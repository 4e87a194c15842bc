import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { GUEST_LIMITS, raiseGuestLimits } from '../../../src/agent/boot/guest-limits.ts'
import { projectRoot } from '../../../src/build/project.ts'
import { bareGuest } from '../../support/agent/bare-guest.ts'

describe('raiseGuestLimits', () => {
  it('raises lower limits, keeps higher ones, and skips those that the kernel lacks', async () => {
    const { os, context } = await bareGuest()
    await os.files.put('/proc/sys/kernel/pid_max', '32768\n')
    await os.files.put('/proc/sys/kernel/keys/maxkeys', '300000\n')
    expect(await raiseGuestLimits(context)).toBe('done')
    const read = (name: string) => os.files.readText(`/proc/sys/${name}`)
    expect(await read('kernel/pid_max')).toBe('4194304')
    expect(await read('kernel/keys/maxkeys')).toBe('300000\n')
    expect(await os.files.stat('/proc/sys/fs/file-max')).toBeUndefined()
    expect(await raiseGuestLimits(context)).toBe('already')
  })

  it('has the limits of the archive’s sysctl.conf', () => {
    const text = readFileSync(join(projectRoot, 'rootfs/archive/sysctl.conf'), 'utf8')
    const set = [...text.matchAll(/^([a-z_.-]+) = (\d+)$/gm)]
    expect(
      new Map(set.map(([, name = '', value = '']) => [name.replaceAll('.', '/'), BigInt(value)])),
    ).toEqual(GUEST_LIMITS)
  })
})
