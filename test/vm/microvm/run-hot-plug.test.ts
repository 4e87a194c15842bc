import { copyFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import {
  createContainer,
  createSandbox,
  rootPathOf,
} from '../../../src/client/container/container-session.ts'
import { containerSpec } from '../../../src/client/container/container-spec.ts'
import { specKey } from '../../../src/host/spec/spec-key.ts'
import { ensureContainerRoot } from '../../../src/image/container-root.ts'
import {
  bootTestGuest,
  cannotBoot,
  type TestGuest,
  type TestGuestOptions,
} from '../../support/vm/boot-guest.ts'
import { type HotDisk, plugDisk, unplugDisk } from '../../support/vm/hot-plug/hot-plug.ts'

const PORT = specKey('port')
const SLOT = 6

/** The first bus of `q35` needs a root port for hot-plug; the bus of `pc` supports hot-plug without ports. */
const PLACES: readonly (readonly [string, TestGuestOptions, HotDisk['bus'], number, string])[] = [
  [
    'a root port of q35',
    { machine: 'q35', extra: { devices: { [PORT]: { kind: 'root-port', slot: SLOT } }, backends: {} } },
    PORT,
    0,
    '06/00',
  ],
  ['the first bus of pc', { machine: 'pc' }, undefined, SLOT, '06'],
]

describe.skipIf(cannotBoot() !== undefined)('a disk plugged into a running guest', () => {
  it.each(PLACES)(
    "becomes a container's root in %s, found by its PCI path, and can be taken out again",
    async (_name, options, bus, slot, source) => {
      const guest = await bootTestGuest(options)
      try {
        await runOn(guest, hotDisk(join(guest.folder, 'hot.ext4'), bus, slot), source)
      } finally {
        await guest.stop()
      }
    },
  )
})

async function runOn({ agent, guest }: TestGuest, disk: HotDisk, source: string): Promise<void> {
  const { qmp, gone } = guest.vm
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
  const rootDisk = { source, mountPoint: rootPathOf('hot') }
  await createContainer(agent, { id: 'hot', hostname: 'hot', spec, rootDisk }, gone)
  await agent.startContainer({ containerId: 'hot' }, { signal: gone })
  const { data } = await agent.readStdout({ containerId: 'hot', execId: 'hot', len: 64 }, { signal: gone })
  expect(String(Buffer.from(data))).toBe('hot')
  expect((await agent.waitProcess({ containerId: 'hot', execId: 'hot' }, { signal: gone })).status).toBe(0)

  await agent.removeContainer({ containerId: 'hot', timeout: 0 }, { signal: gone })
  await unplugDisk(qmp, disk, gone)
  expect((await qmp.execute('query-status', {}, gone)).running).toBe(true)
}

function hotDisk(path: string, bus: HotDisk['bus'], slot: number): HotDisk {
  return {
    key: specKey('0b7e4a52-9c7e-4a63-8f3e-2f3f5d6a7b8c'),
    device: { kind: 'disk', slot, serial: 'hot', backend: specKey('hot-file') },
    backend: { kind: 'file', path, access: 'read-write' },
    bus,
  }
}
