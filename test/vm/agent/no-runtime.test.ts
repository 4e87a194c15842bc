import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { ensureImage } from '../../../src/image/ensure-image.ts'
import { writeErofs } from '../../../src/image/formats/file-systems.ts'
import { guestTree } from '../../../src/image/guest-tree.ts'
import { ensureKernel } from '../../../src/image/kernel/kernel.ts'
import { DEFAULT_KERNEL } from '../../../src/image/packages.ts'
import { RUNTIMES } from '../../../src/image/runtimes.ts'
import { temporaryFolder } from '../../support/temporary-folder.ts'
import { cannotBoot, progress } from '../../support/vm/boot-guest.ts'
import { bootPod, consoleLine } from '../../support/vm/guest-pod.ts'

describe.skipIf(cannotBoot() !== undefined)('a guest whose root has no OCI runtime', () => {
  it('boots and answers, and names what a container lacks', async () => {
    const image = await ensureImage({ progress })
    const { base, agent } = await guestTree(await ensureKernel(DEFAULT_KERNEL, progress), { progress })
    const programs: readonly string[] = Object.values(RUNTIMES).map(({ program }) => program)
    const disk = join(temporaryFolder(), 'root.erofs')
    await writeErofs(
      disk,
      [...base, ...agent].filter(({ path }) => !programs.includes(path)),
    )
    const root = { path: disk, type: 'erofs' } as const
    const { guest, pod } = await bootPod({ boot: { ...image, root } })
    try {
      await consoleLine(guest, /"OCI runtime missing","level":"WARN".*"\/usr\/sbin\/runc"/)
      await expect(pod.create('c1', ['true'])).rejects.toMatchObject({
        code: 'INTERNAL',
        message: 'the OCI runtime /usr/sbin/runc cannot be started: it or its loader is missing',
      })
      // Nothing of the container is left, and the sandbox still serves.
      await expect(pod.remove('c1')).rejects.toMatchObject({ message: 'Invalid container id' })
      expect(await guest.health.check({})).toMatchObject({ status: 1 })
      await pod.agent.destroySandbox({})
      guest.guest.connection.close()
      expect(await guest.guest.vm.exited).toEqual({ code: 0, signal: undefined })
    } finally {
      await guest.stop()
    }
  })
})
