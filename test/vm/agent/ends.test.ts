import { mkdirSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { specKey } from '../../../src/microvm/spec.ts'
import { shareFolder } from '../../../src/microvm/virtiofsd.ts'
import { busyboxRoot } from '../../support/containers/busybox-root.ts'
import { podOf } from '../../support/containers/pod.ts'
import { temporaryFolder } from '../../support/temporary-folder.ts'
import { bootTestGuest, CRUN, cannotBoot } from '../../support/vm/boot-guest.ts'

const SHARED = '/run/kata-containers/shared/containers'
const SHARE = specKey('share')
const SHARE_SERVER = specKey('virtiofsd')

describe.skipIf(cannotBoot() !== undefined)('DestroySandbox in a guest', () => {
  it('whose virtio-fs is dead names the mount after 30 s, and powers the guest off when it is repeated', async () => {
    const folder = temporaryFolder()
    mkdirSync(join(folder, 'shared'))
    busyboxRoot(join(folder, 'shared/web'))
    const share = await shareFolder(join(folder, 'shared'), join(folder, 'share.sock'))
    const guest = await bootTestGuest({
      append: [CRUN],
      extra: {
        devices: { [SHARE]: { kind: 'share', slot: 6, tag: 'kataShared', backend: SHARE_SERVER } },
        backends: { [SHARE_SERVER]: share.backend },
      },
    })
    try {
      const storage = { driver: 'virtio-fs', source: 'kataShared', fstype: 'virtiofs', options: ['nodev'] }
      const storages = [{ ...storage, mountPoint: `${SHARED}/` }]
      await guest.agent.createSandbox({ sandboxId: 'pod', hostname: 'pod', storages })
      expect(await podOf(guest.agent, `${SHARED}/web/root`).output('web', 'echo served')).toBe('served\n')
      await share.close()
      await expect(guest.agent.destroySandbox({})).rejects.toThrow(`unmount ${SHARED}: ETIMEDOUT`)
      await guest.agent.destroySandbox({})
      expect(await guest.guest.vm.exited).toEqual({ code: 0, signal: undefined })
    } finally {
      await guest.stop()
      await share.close()
    }
  })
})
