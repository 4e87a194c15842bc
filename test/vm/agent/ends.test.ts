import { mkdirSync } from 'node:fs'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { describe, expect, it } from 'vitest'
import { specKey } from '../../../src/microvm/spec.ts'
import { shareFolder } from '../../../src/microvm/virtiofsd.ts'
import { busyboxRoot } from '../../support/containers/busybox-root.ts'
import { podOf } from '../../support/containers/pod.ts'
import { processes } from '../../support/processes.ts'
import { temporaryFolder } from '../../support/temporary-folder.ts'
import { bootTestGuest, CRUN, cannotBoot } from '../../support/vm/boot-guest.ts'
import { bootPod, consoleLine, ROOT } from '../../support/vm/guest-pod.ts'

const SHARED = '/run/kata-containers/shared/containers'
const SHARE = specKey('share')
const SHARE_SERVER = specKey('virtiofsd')
const DAEMON = 'vhost-device-vs'

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

  it('is answered although the host reads the answer only after the guest has stopped its agent', async () => {
    const { guest, pod } = await bootPod({ append: [CRUN], vsock: 'vhost-user' })
    try {
      const daemon = processes().find(({ name, parent }) => name === DAEMON && parent === process.pid)?.pid
      if (daemon === undefined) throw new Error(`no ${DAEMON}`)
      const Path = `${ROOT}/bin/busybox`
      const hook = { Path, Args: ['sh', '-c', `echo leaving > /dev/console; ${Path} sleep 2`] }
      await pod.run('last', ['sleep', '1000'], { spec: { Hooks: { Poststop: [hook] } } })
      const answered = guest.agent.destroySandbox({})
      answered.catch(() => {})
      await consoleLine(guest, /^leaving/)
      process.kill(daemon, 'SIGSTOP')
      try {
        await consoleLine(guest, /"msg":"stopped"/)
        await Promise.race([guest.guest.vm.exited, sleep(1000)])
      } finally {
        process.kill(daemon, 'SIGCONT')
      }
      await answered
      expect(await guest.guest.vm.exited).toEqual({ code: 0, signal: undefined })
    } finally {
      await guest.stop()
    }
  })
})
