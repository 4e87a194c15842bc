import { describe, expect, it } from 'vitest'
import { KATA_COMMAND_LINE } from '../../fixtures/kata-command-line.ts'
import { cannotBoot, type TestGuestOptions } from '../../support/vm/boot-guest.ts'
import { expectToOutliveAgent } from '../../support/vm/container-life.ts'
import { bootPod, consoleLine, GUEST_PROC } from '../../support/vm/guest-pod.ts'

/** Each form of the guest image, with the kernel and the memory that it must run with, and its root as it is mounted. */
const FORMS: readonly (readonly [string, TestGuestOptions, RegExp, RegExp])[] = [
  [
    'the disk root in 128 MiB, with a console on its command line that is not there,',
    { memoryMib: 128, append: ['console=hvc0'] },
    /^\/dev\/vda \/ erofs ro/m,
    /^6\.12\./,
  ],
  [
    'the partitioned root on Debian 12’s kernel, in 128 MiB,',
    { memoryMib: 128, kernel: 'bookworm', form: 'partitioned' },
    /^\/dev\/vda1 \/ erofs ro/m,
    /^6\.1\./,
  ],
  [
    'all in one initrd in 448 MiB, under the command line that Kata writes,',
    { memoryMib: 448, form: 'initrd', console: 'virtio', append: KATA_COMMAND_LINE },
    /^\S+ \/ rootfs /m,
    /^6\.12\./,
  ],
]

describe.skipIf(cannotBoot() !== undefined)('a guest whose image is', () => {
  it.each(FORMS)(
    '%s boots without a shell, runs a container, and goes on when its agent dies',
    async (_name, options, root, release) => {
      const { guest, pod } = await bootPod(options)
      try {
        expect(await pod.output('release', 'uname -r')).toMatch(release)
        expect(await pod.output('mounts', 'cat /guest/proc/1/mounts', { mounts: [GUEST_PROC] })).toMatch(root)
        const text = await pod.output('bulk', 'head -c 1000000 /dev/zero | tr "\\0" x')
        expect(text.length).toBe(1_000_000)
        const restarted = consoleLine(guest, /vminit: the agent was killed by signal 9: restart 1 in/)
        await Promise.all([restarted, expectToOutliveAgent(pod)])
        // The agent powers the guest off after it has answered.
        await pod.agent.destroySandbox({})
        await guest.guest.vm.exited
        expect(guest.consoleText()).toContain('"msg":"stopped"')
        expect(guest.consoleText()).not.toContain('"because":"unknown"')
      } finally {
        await guest.stop()
      }
    },
  )
})
