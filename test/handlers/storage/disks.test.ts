import { beforeEach, describe, expect, it } from 'vitest'
import { neverAborted } from '../../../src/base/abort.ts'
import type { Storage } from '../../../src/gen/agent.ts'
import type { StorageDriver } from '../../../src/handlers/storage/driver.ts'
import { mmioblk, nvdimm, scsi } from '../../../src/handlers/storage/drivers/block.ts'
import { storageDriverContract } from '../../support/contracts/storage-driver.ts'
import { FakeOs } from '../../support/fakes/fake-os.ts'
import { dependenciesOf, ROOT, storageOf } from '../../support/handlers/storage/storage-builder.ts'

interface Kind {
  readonly driver: StorageDriver
  readonly source: string
  readonly sysfs: string
  readonly node: string
  readonly badSources: readonly string[]
}

const KINDS: Readonly<Record<string, Kind>> = {
  mmioblk: {
    driver: mmioblk,
    source: '/dev/vdb',
    sysfs: '/sys/class/block/vdb',
    node: '/dev/vdb',
    badSources: ['', 'vdb', '/dev/disk/by-id/x', '/dev/../etc/shadow'],
  },
  nvdimm: {
    driver: nvdimm,
    source: '/dev/pmem0',
    sysfs: '/sys/class/block/pmem0',
    node: '/dev/pmem0',
    badSources: ['', '/dev/vdb', '/dev/pmem', '/dev/pmem0/x'],
  },
  scsi: {
    driver: scsi,
    source: '1:0',
    sysfs: '/sys/bus/scsi/devices/2:0:1:0/block/sda',
    node: '/dev/sda',
    badSources: ['', '1', '/dev/sda', '1:0:0'],
  },
}

for (const [name, kind] of Object.entries(KINDS)) {
  storageDriverContract(name, {
    driver: kind.driver,
    storage: storageFor(name),
    prepare: (os) => plug(os, kind),
  })
}

describe.each(Object.entries(KINDS))('%s', (name, kind) => {
  let os: FakeOs

  beforeEach(async () => {
    os = new FakeOs()
    await plug(os, kind)
  })

  it('mounts the disk that the host names', async () => {
    await attach({ options: ['ro'] })
    expect(os.mounts.requests).toMatchObject([{ source: kind.node, type: 'ext4', flags: ['ro'] }])
  })

  it('makes a file system on the disk when requested', async () => {
    os.tools.script(() => ({}))
    await attach({ driverOptions: ['create_filesystem'] })
    expect(os.tools.calls[0]?.argv.at(-1)).toBe(kind.node)
  })

  it('changes its group to the requested one', async () => {
    await attach({ fsGroup: { groupId: 1000, groupChangePolicy: 0 } })
    expect(await os.files.lstat(storageFor(name).mountPoint)).toMatchObject({ gid: 1000 })
  })

  it.each(kind.badSources)('refuses the source %j', async (source) => {
    await expect(attach({ source })).rejects.toMatchObject({ code: 'INVALID_ARGUMENT' })
    expect(os.mounts.requests).toEqual([])
  })

  const attach = (changes: Partial<Storage>) =>
    kind.driver.attach({ ...storageFor(name), ...changes }, dependenciesOf(os), neverAborted)
})

function storageFor(driver: string): Storage {
  const source = KINDS[driver]?.source ?? ''
  return storageOf({ driver, source, fstype: 'ext4', mountPoint: `${ROOT}/sandbox/storage/ZGlzaw==` })
}

async function plug(os: FakeOs, { sysfs, node }: Kind): Promise<void> {
  await os.files.put(`${sysfs}/dev`, '254:16\n')
  await os.files.makeSpecial(node, { kind: 'block', major: 254, minor: 16 })
}
