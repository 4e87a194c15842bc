import { describe, expect, it } from 'vitest'
import { cannotBoot, type TestGuestOptions } from '../../support/vm/boot-guest.ts'
import { bootPod, GUEST_PROC } from '../../support/vm/guest-pod.ts'

/** Each form of the guest image, with the kernel and the memory that it must run with. */
const FORMS: readonly (readonly [string, TestGuestOptions, string, RegExp])[] = [
  ['the disk root in 256 MiB', { memoryMib: 256 }, 'erofs', /^6\.1\./],
  [
    'the disk root on Debian 13’s kernel, in 256 MiB',
    { memoryMib: 256, kernel: 'trixie' },
    'erofs',
    /^6\.12\./,
  ],
  ['all in one initrd', { memoryMib: 1024, form: 'initrd' }, 'rootfs', /^6\.1\./],
]

describe.skipIf(cannotBoot() !== undefined)('a guest whose image is', () => {
  it.each(FORMS)(
    '%s boots without a shell and runs a container',
    async (_name, options, rootType, release) => {
      const { guest, pod } = await bootPod(options)
      try {
        expect(await pod.output('release', 'uname -r')).toMatch(release)
        const mounts = await pod.output('mounts', 'cat /guest/proc/1/mounts', { mounts: [GUEST_PROC] })
        expect(
          mounts.split('\n').some((line) => line.split(' ').slice(1, 3).join(' ') === `/ ${rootType}`),
        ).toBe(true)
        // The agent powers the guest off after it has answered.
        await pod.agent.destroySandbox({})
        await guest.guest.vm.exited
      } finally {
        await guest.stop()
      }
    },
  )
})
