import { copyFileSync } from 'node:fs'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { ensureContainerRoot } from '../../rootfs/ensure-image.ts'
import { type HotDisk, plugDisk, unplugDisk } from '../../src/microvm/qmp/hot-plug.ts'
import { createContainer, createSandbox, rootPathOf } from '../../src/microvm/run/container-session.ts'
import { containerSpec } from '../../src/microvm/run/container-spec.ts'
import { specKey } from '../../src/microvm/spec-key.ts'
import { bootTestGuest, cannotBoot, type TestGuest } from './boot-guest.ts'

const skipped = cannotBoot() !== undefined
const PORT = specKey('port')
const PORT_SLOT = 6

function hotDisk(path: string): HotDisk {
  return {
    key: specKey('0b7e4a52-9c7e-4a63-8f3e-2f3f5d6a7b8c'),
    device: { kind: 'disk', slot: PORT_SLOT, serial: 'hot', backend: specKey('hot-file') },
    backend: { kind: 'file', path, access: 'read-write' },
    rootPort: PORT,
  }
}

describe.skipIf(skipped)('a disk plugged into a running guest', () => {
  let guest: TestGuest | undefined
  beforeAll(async () => {
    const extra = { devices: { [PORT]: { kind: 'root-port', slot: PORT_SLOT } as const }, backends: {} }
    guest = await bootTestGuest({ extra })
  })
  afterAll(async () => {
    await guest?.stop()
  })

  it("becomes a container's root, found by its PCI path, and can be taken out again", async () => {
    if (guest === undefined) throw new Error('the guest did not boot')
    const { agent } = guest
    const { qmp, gone } = guest.guest.vm
    const disk = hotDisk(join(guest.folder, 'hot.ext4'))
    copyFileSync(await ensureContainerRoot(() => {}), disk.backend.path)
    await createSandbox(agent, { id: 'sandbox', hostname: 'sandbox' }, gone)
    await plugDisk(qmp, disk, gone)

    const spec = containerSpec({
      id: 'hot',
      args: ['cat', '/sys/block/vdc/serial'],
      env: [],
      cwd: '/',
      user: { uid: 0, gid: 0, additionalGids: [] },
      terminal: undefined,
      hostname: 'hot',
      rootPath: rootPathOf('hot'),
    })
    const rootDisk = { source: '06/00', mountPoint: rootPathOf('hot') }
    await createContainer(agent, { id: 'hot', hostname: 'hot', spec, rootDisk }, gone)
    await agent.startContainer({ containerId: 'hot' }, { signal: gone })
    const { data } = await agent.readStdout({ containerId: 'hot', execId: 'hot', len: 64 }, { signal: gone })
    expect(String(Buffer.from(data))).toBe('hot')
    expect((await agent.waitProcess({ containerId: 'hot', execId: 'hot' }, { signal: gone })).status).toBe(0)

    await agent.removeContainer({ containerId: 'hot', timeout: 0 }, { signal: gone })
    await unplugDisk(qmp, disk, gone)
    expect((await qmp.execute('query-status', {}, gone)).running).toBe(true)
  })
})
