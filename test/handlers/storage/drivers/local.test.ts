import { describe, expect, it } from 'vitest'
import { neverAborted } from '../../../../src/base/abort.ts'
import { local } from '../../../../src/handlers/storage/drivers/local.ts'
import { storageDriverContract } from '../../../support/contracts/storage-driver.ts'
import { FakeOs } from '../../../support/fakes/fake-os.ts'
import { dependenciesOf, ROOT, storageOf } from '../../../support/handlers/storage/storage-builder.ts'

const MOUNT_POINT = `${ROOT}/shared/containers/s1/rootfs/local/data`

storageDriverContract('local', {
  driver: local,
  storage: storageOf({ driver: 'local', source: 'local', mountPoint: MOUNT_POINT, options: ['mode=0777'] }),
})

describe('local', () => {
  it('mounts nothing and stays attached until the sandbox ends', async () => {
    const { os, attachment } = await attach([])
    expect(attachment).toMatchObject({ mountPoint: MOUNT_POINT, kind: 'directory', keep: true })
    expect(os.mounts.requests).toEqual([])
  })

  it('refuses a path that is not a directory and leaves it alone', async () => {
    const os = new FakeOs()
    await os.files.put(MOUNT_POINT, 'precious')
    const before = await os.files.lstat(MOUNT_POINT)
    const options = ['mode=0777', 'fsgid=1000']
    const storage = storageOf({ driver: 'local', source: 'local', mountPoint: MOUNT_POINT, options })
    const attaching = local.attach(storage, dependenciesOf(os), neverAborted)
    await expect(attaching).rejects.toMatchObject({ code: 'INVALID_ARGUMENT' })
    expect(await os.files.lstat(MOUNT_POINT)).toEqual(before)
  })

  it('sets the mode of the directory', async () => {
    const { os } = await attach(['mode=0777'])
    expect(await os.files.lstat(MOUNT_POINT)).toMatchObject({ mode: 0o777, gid: 0 })
  })

  it('changes its group to that of the storage', async () => {
    const os = new FakeOs()
    const fsGroup = { groupId: 1000, groupChangePolicy: 0 } as const
    const storage = storageOf({ driver: 'local', source: 'local', mountPoint: MOUNT_POINT, fsGroup })
    await local.attach(storage, dependenciesOf(os), neverAborted)
    expect(await os.files.lstat(MOUNT_POINT)).toMatchObject({ mode: 0o2775, gid: 1000 })
  })

  it('changes the group to that of fsgid and sets the setgid bit', async () => {
    const { os } = await attach(['mode=0770', 'fsgid=1000'])
    expect(await os.files.lstat(MOUNT_POINT)).toMatchObject({ mode: 0o2770, gid: 1000 })
  })

  it.each([
    'mode=',
    'mode=rwx',
    'mode=0888',
    'mode=77777',
    'fsgid=',
    'fsgid=staff',
    'fsgid=-1',
    'fsgid=4294967295',
  ])('refuses the option %s', async (option) => {
    await expect(attach([option])).rejects.toThrow(`storage option ${option}: `)
  })
})

async function attach(options: string[]) {
  const os = new FakeOs()
  const storage = storageOf({ driver: 'local', source: 'local', mountPoint: MOUNT_POINT, options })
  return { os, attachment: await local.attach(storage, dependenciesOf(os), neverAborted) }
}
