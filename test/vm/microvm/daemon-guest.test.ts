import { execFileSync } from 'node:child_process'
import { truncateSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { State } from '../../../src/gen/microvm/instance/v1/instance.ts'
import { specKey } from '../../../src/host/spec/spec-key.ts'
import { bind } from '../../support/containers/container-requests.ts'
import { type Pod, podOf } from '../../support/containers/pod.ts'
import { temporaryFolder } from '../../support/temporary-folder.ts'
import { cannotBoot } from '../../support/vm/boot-guest.ts'
import { bootInDaemon, type DaemonGuest } from '../../support/vm/daemon-guest.ts'
import { ROOT } from '../../support/vm/guest-pod.ts'

const DATA = '/run/kata-containers/sandbox/data'

describe.skipIf(cannotBoot() !== undefined)('a guest of the daemon', () => {
  const folder = temporaryFolder()
  const disk = join(folder, 'data.img')
  let guest: DaemonGuest
  let pod: Pod

  beforeAll(async () => {
    writeFileSync(disk, '')
    truncateSync(disk, 64 * 2 ** 20)
    execFileSync('/sbin/mkfs.ext4', ['-q', disk])
    const backend = specKey('data-file')
    guest = await bootInDaemon({
      folder,
      extra: {
        devices: { [specKey('data')]: { kind: 'disk', slot: 6, serial: 'data', backend } },
        backends: { [backend]: { kind: 'file', path: disk, access: 'read-write' } },
      },
    })
    const storage = { driver: 'blk', fstype: 'ext4', options: [] }
    const storages = [
      { ...storage, source: guest.rootSource, mountPoint: ROOT },
      { ...storage, source: '06', mountPoint: DATA },
    ]
    await guest.agent.createSandbox({ sandboxId: 'pod', hostname: 'web', storages })
    pod = podOf(guest.agent, ROOT)
  })
  afterAll(() => guest?.close())

  it('ends with its container and writes its disk when the power button is pressed', async () => {
    const script = 'trap "" TERM; echo written > /data/file; echo ready; sleep 1000'
    const init = await pod.run('running', ['sh', '-c', script], { mounts: [bind(DATA, '/data')] })
    await init.readUntil('ready')
    const begun = performance.now()
    expect(await guest.run('stop', 'web')).toMatchObject({ status: 0, stdout: 'web: stopped\n' })
    // The guest leaves its callers 2.5 s to read the last answers.
    expect(performance.now() - begun).toBeLessThan(15_000)
    const { state, reason } = await guest.client.instances.getInstance({ key: 'web' })
    expect({ state, reason }).toEqual({ state: State.STOPPED, reason: '' })
    expect(execFileSync('/sbin/debugfs', ['-R', 'cat /file', disk], { stdio: 'pipe' }).toString()).toBe(
      'written\n',
    )
    // It was unmounted.
    expect(execFileSync('/sbin/dumpe2fs', ['-h', disk], { stdio: 'pipe' }).toString()).toMatch(
      /^Filesystem state: +clean$/m,
    )
  })
})
