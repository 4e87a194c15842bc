import { describe, expect, it } from 'vitest'
import { CRUN, cannotBoot } from '../../support/vm/boot-guest.ts'
import { bootPod, ROOT } from '../../support/vm/guest-pod.ts'

describe.skipIf(cannotBoot() !== undefined)('a machine without PCI', () => {
  it('mounts the disk that the host names by its node, names a node that does not exist, and heeds the power button', async () => {
    const disk = { driver: 'mmioblk', source: '/dev/vdb', fstype: 'ext4', options: [], mountPoint: ROOT }
    // The machine's console is silent: the test cannot see when vsock is ready and might connect too early.
    const { guest, pod } = await bootPod(
      { machine: 'microvm', append: [CRUN], vsock: 'tcp' },
      { storages: [disk] },
    )
    try {
      await expect(pod.output('mmio', 'echo -n ok')).resolves.toBe('ok')
      const storages = [{ ...disk, source: '/dev/vdc', mountPoint: `${ROOT}-late` }]
      const creating = pod.create('late', ['true'], { storages })
      await expect(creating).rejects.toThrow('block device vdc: no /sys/class/block/vdc')
      await guest.guest.vm.qmp.execute('system_powerdown', {}, AbortSignal.timeout(10_000))
      expect(await guest.guest.vm.exited).toEqual({ code: 0, signal: undefined })
    } finally {
      await guest.stop()
    }
  })
})
