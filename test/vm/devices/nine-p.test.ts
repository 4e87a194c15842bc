import { randomBytes } from 'node:crypto'
import { readFileSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { withTemporaryFolder } from '../../../src/build/temporary-folder.ts'
import { specKey } from '../../../src/host/spec/spec-key.ts'
import { bind } from '../../support/containers/container-requests.ts'
import { storageOf } from '../../support/handlers/storage/storage-builder.ts'
import { CRUN, cannotBoot } from '../../support/vm/boot-guest.ts'
import { bootPod, ROOT } from '../../support/vm/guest-pod.ts'

const SHARED = '/run/kata-containers/shared/containers'
const BACKEND = specKey('folder')
const STORAGES = [
  storageOf({ driver: 'blk', source: '05', fstype: 'ext4', mountPoint: ROOT }),
  storageOf({
    driver: '9p',
    source: 'kataShared',
    fstype: '9p',
    options: ['trans=virtio,version=9p2000.L,cache=mmap', 'nodev'],
    mountPoint: SHARED,
  }),
]

describe.skipIf(cannotBoot() !== undefined)('a guest whose kernel has 9p', () => {
  it('shares a folder over 9p that the host and the guest write to', async () => {
    await withTemporaryFolder(tmpdir(), async (folder) => {
      writeFileSync(join(folder, 'from-host'), 'host')
      const extra = {
        devices: { [specKey('share')]: { kind: 'share', slot: 6, tag: 'kataShared', backend: BACKEND } },
        backends: { [BACKEND]: { kind: 'folder', path: folder } },
      } as const
      const { guest, pod } = await bootPod(
        { kernel: 'bookworm-generic', append: [CRUN], extra },
        { storages: STORAGES },
      )
      try {
        const mounts = [bind(SHARED, '/shared')]
        const script = 'cat /shared/from-host; echo -n guest > /shared/from-guest'
        expect(await pod.output('sharing', script, { mounts })).toBe('host')
        expect(readFileSync(join(folder, 'from-guest'), 'utf8')).toBe('guest')
        const data = randomBytes(2 ** 20)
        const file = { path: `${SHARED}/copied`, fileMode: 0o100_644, dirMode: 0o755 }
        await guest.agent.copyFile({ ...file, fileSize: BigInt(data.length), data })
        expect(readFileSync(join(folder, 'copied')).equals(data)).toBe(true)
      } finally {
        await guest.stop()
      }
    })
  })
})
