import { beforeEach, describe, expect, it } from 'vitest'
import { neverAborted } from '../../../src/base/abort.ts'
import { type MountRequest, mountStorage } from '../../../src/handlers/storage/mount-storage.ts'
import { FakeOs } from '../../support/fakes/fake-os.ts'
import { dependenciesOf, ROOT, storageOf } from '../../support/handlers/storage/storage-builder.ts'

const TARGET = `${ROOT}/c1/mount`

describe('mountStorage', () => {
  let os: FakeOs

  beforeEach(() => {
    os = new FakeOs()
  })

  it.each(['source', 'fstype', 'mountPoint'] as const)('refuses a request without %s', async (name) => {
    await expect(mount({ [name]: '' })).rejects.toMatchObject({
      code: 'INVALID_ARGUMENT',
      message: expect.stringContaining(`${name} is empty`),
    })
  })

  it('creates a file as the mount point of a bound file', async () => {
    await os.files.put('/data/file', 'x')
    await mount({ source: '/data/file', fstype: 'bind', options: ['bind'] })
    expect((await os.files.lstat(TARGET))?.kind).toBe('file')
  })

  it('creates a directory as the mount point of a bound directory', async () => {
    await os.files.makeDirectories('/data')
    await mount({ source: '/data', fstype: 'bind', options: ['rbind'] })
    expect((await os.files.lstat(TARGET))?.kind).toBe('directory')
    expect(os.mounts.requests.map(({ flags }) => flags)).toEqual([['bind', 'rec']])
  })

  it('makes a bind mount read-only by a second call, because the first ignores the flag', async () => {
    await os.files.makeDirectories('/data')
    await mount({ source: '/data', fstype: 'bind', options: ['rbind', 'ro', 'nosuid'] })
    expect(os.mounts.requests.map(({ flags }) => flags)).toEqual([
      ['bind', 'ro', 'nosuid', 'rec'],
      ['remount', 'bind', 'ro', 'nosuid'],
    ])
  })

  it('changes propagation with a separate call', async () => {
    await mount({ options: ['rslave', 'nodev'] })
    expect(os.mounts.requests.map(({ flags }) => flags)).toEqual([['nodev'], ['slave', 'rec']])
  })

  it('unmounts and removes the mount point when a later step fails', async () => {
    const finish = async () => Promise.reject(new Error('chmod failed'))
    await expect(mount({}, finish)).rejects.toThrow('chmod failed')
    expect(os.mounts.isMountPoint(TARGET)).toBe(false)
    expect(await os.files.lstat(TARGET)).toBeUndefined()
  })

  it('unmounts the mounts of a recursive bind when a later step fails', async () => {
    await os.files.makeDirectories('/data')
    const finish = async () => {
      await os.mounts.mount({ source: 'x', target: `${TARGET}/sub`, type: 'tmpfs', flags: [], data: '' })
      throw new Error('chmod failed')
    }
    const request = { source: '/data', fstype: 'bind', options: ['rbind'] }
    await expect(mount(request, finish)).rejects.toThrow('chmod failed')
    expect(os.mounts.entries.map(({ mountPoint }) => mountPoint)).toEqual(['/'])
  })

  it('creates the mount point before it waits for the source, and removes it when none appears', async () => {
    const source = async () => {
      expect((await os.files.lstat(TARGET))?.kind).toBe('directory')
      throw new Error('no disk')
    }
    await expect(mount({ source })).rejects.toThrow('no disk')
    expect(await os.files.lstat(TARGET)).toBeUndefined()
    await mount({ source: async () => '/dev/vdb' })
    expect(os.mounts.requests).toMatchObject([{ source: '/dev/vdb', target: TARGET }])
  })

  it('leaves a mount alone when its remount fails', async () => {
    await mount({})
    os.mounts.failWith = (call) => (call === 'mount' ? 'EINVAL' : undefined)
    await expect(mount({ options: ['remount', 'size=1M'] })).rejects.toThrow('EINVAL')
    expect(os.mounts.isMountPoint(TARGET)).toBe(true)
  })

  function mount(changes: Partial<MountRequest>, finish?: () => Promise<void>) {
    return mountStorage(
      { ...storageOf({ mountPoint: TARGET }), ...changes },
      dependenciesOf(os),
      neverAborted,
      finish,
    )
  }
})
