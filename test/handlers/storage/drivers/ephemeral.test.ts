import { beforeEach, describe, expect, it } from 'vitest'
import { neverAborted } from '../../../../src/base/abort.ts'
import type { Storage } from '../../../../src/gen/agent.ts'
import { ephemeral } from '../../../../src/handlers/storage/drivers/ephemeral.ts'
import { storageDriverContract } from '../../../support/contracts/storage-driver.ts'
import { FakeOs } from '../../../support/fakes/fake-os.ts'
import { dependenciesOf, storageOf } from '../../../support/handlers/storage/storage-builder.ts'

const HUGE_PAGES = '/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages'
const MIB = 1024 * 1024

storageDriverContract('ephemeral', {
  driver: ephemeral,
  storage: storageOf({ options: ['size=64M', 'fsgid=1000'] }),
})

storageDriverContract('ephemeral with huge pages', {
  driver: ephemeral,
  storage: storageOf({ fstype: 'hugetlbfs', source: 'nodev', options: hugeOptions(4) }),
  prepare: (os) => os.files.put(HUGE_PAGES, '0\n'),
})

describe('ephemeral', () => {
  let os: FakeOs

  beforeEach(() => {
    os = new FakeOs()
  })

  it('mounts with the size and mode of the request', async () => {
    const { mountPoint } = await attach({ options: ['size=64M', 'mode=1777', 'nosuid'] })
    expect(os.mounts.requests).toEqual([
      { source: 'tmpfs', target: mountPoint, type: 'tmpfs', flags: ['nosuid'], data: 'size=64M,mode=1777' },
    ])
  })

  it('does not pass fsgid to the file system and changes the group of the mount', async () => {
    const { mountPoint } = await attach({ options: ['fsgid=1000', 'size=1M'] })
    expect(os.mounts.requests[0]?.data).toBe('size=1M')
    expect(await os.files.lstat(mountPoint)).toMatchObject({ gid: 1000, mode: 0o2755 })
  })

  it('stays attached until the sandbox ends', async () => {
    await expect(attach({})).resolves.toMatchObject({ kind: 'mount', keep: true })
  })

  describe('with huge pages', () => {
    it('reserves them before it mounts', async () => {
      await os.files.put(HUGE_PAGES, '0\n')
      await attach({ fstype: 'hugetlbfs', options: hugeOptions(8) })
      expect(await os.files.readText(HUGE_PAGES)).toBe('4')
      expect(os.mounts.requests[0]).toMatchObject({ type: 'hugetlbfs', data: hugeOptions(8).join(',') })
    })

    it('takes both options from one text joined by a comma, as shims send them', async () => {
      await os.files.put(HUGE_PAGES, '0\n')
      const { mountPoint } = await attach({
        ...{
          fstype: 'hugetlbfs',
          source: 'nodev',
          options: [`${hugeOptions(8).join(',')},fsgid=1000`, 'nodev'],
        },
      })
      expect(await os.files.readText(HUGE_PAGES)).toBe('4')
      expect(os.mounts.requests[0]).toMatchObject({ data: hugeOptions(8).join(','), flags: ['nodev'] })
      expect(await os.files.lstat(mountPoint)).toMatchObject({ gid: 1000 })
    })

    it('fails when the kernel has too few, and releases those it reserved', async () => {
      await os.files.put(HUGE_PAGES, '1\n')
      const write = os.files.write.bind(os.files)
      os.files.write = (path, data) => write(path, data === '4' ? '3\n' : data)
      const attaching = attach({ fstype: 'hugetlbfs', options: hugeOptions(8) })
      await expect(attaching).rejects.toThrow('Only allocated 3 of 4 hugepages of size 2097152')
      expect(await os.files.readText(HUGE_PAGES)).toBe('1')
    })

    it('adds to the pages of another storage, and releases only its own', async () => {
      await os.files.put(HUGE_PAGES, '1\n')
      const request = dependenciesOf(os)
      const attachOf = (sizeMib: number) => {
        const storage = storageOf({ fstype: 'hugetlbfs', options: hugeOptions(sizeMib) })
        return ephemeral.attach(storage, request, neverAborted)
      }
      const [first, second] = await Promise.all([attachOf(8), attachOf(4)])
      expect(await os.files.readText(HUGE_PAGES)).toBe('6')
      await first.onRemove?.()
      expect(await os.files.readText(HUGE_PAGES)).toBe('2')
      await second.onRemove?.()
      expect(await os.files.readText(HUGE_PAGES)).toBe('1')
    })

    it('releases its pages when the mount fails', async () => {
      await os.files.put(HUGE_PAGES, '0\n')
      os.mounts.failWith = () => 'EINVAL'
      await expect(attach({ fstype: 'hugetlbfs', options: hugeOptions(8) })).rejects.toThrow('EINVAL')
      expect(await os.files.readText(HUGE_PAGES)).toBe('0')
    })

    it.each([
      [['size=8388608'], 'no pagesize/size options found'],
      [['pagesize=2097152'], 'no pagesize/size options found'],
      [['pagesize=2097152,fsgid=1000'], 'no pagesize/size options found'],
      [['pagesize=2097152,size='], 'storage option size=: not a positive number of bytes'],
      [['pagesize=2M', 'size=8388608'], 'storage option pagesize=2M: not a positive number of bytes'],
      [['pagesize=0', 'size=8388608'], 'storage option pagesize=0: not a positive number of bytes'],
      [
        ['pagesize=4096', 'size=8388608'],
        'storage option pagesize=4096: the kernel has no huge pages of this size',
      ],
      [
        ['pagesize=2097153', 'size=8388608'],
        'storage option pagesize=2097153: the kernel has no huge pages of this size',
      ],
      [
        ['pagesize=2097152', 'size=2097151'],
        'storage option size=2097151: less than one page, want at least 2097152',
      ],
    ])('refuses %j', async (options, message) => {
      await os.files.put(HUGE_PAGES, '0\n')
      await expect(attach({ fstype: 'hugetlbfs', options })).rejects.toThrow(message)
    })
  })

  function attach(changes: Partial<Storage>) {
    return ephemeral.attach(storageOf(changes), dependenciesOf(os), neverAborted)
  }
})

function hugeOptions(sizeMib: number): string[] {
  return ['pagesize=2097152', `size=${sizeMib * MIB}`]
}
