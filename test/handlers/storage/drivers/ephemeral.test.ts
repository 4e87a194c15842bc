import { beforeEach, describe, expect, it } from 'vitest'
import { neverAborted } from '../../../../src/base/abort.ts'
import type { Storage } from '../../../../src/gen/agent.ts'
import { ephemeral } from '../../../../src/handlers/storage/drivers/ephemeral.ts'
import { storageDriverContract } from '../../../support/contracts/storage-driver.ts'
import { FakeOs } from '../../../support/fakes/fake-os.ts'
import { dependenciesOf, storageOf } from '../../../support/handlers/storage-builder.ts'

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

  it('mounts with the size and mode that the host asked for', async () => {
    const { mountPoint } = await attach({ options: ['size=64M', 'mode=1777', 'nosuid'] })
    expect(os.mounts.requests).toEqual([
      { source: 'tmpfs', target: mountPoint, type: 'tmpfs', flags: ['nosuid'], data: 'size=64M,mode=1777' },
    ])
  })

  it('keeps fsgid from the file system and gives the mount to the group', async () => {
    const { mountPoint } = await attach({ options: ['fsgid=1000', 'size=1M'] })
    expect(os.mounts.requests[0]?.data).toBe('size=1M')
    expect(await os.files.lstat(mountPoint)).toMatchObject({ gid: 1000, mode: 0o2755 })
  })

  it('is kept until the sandbox ends', async () => {
    await expect(attach({})).resolves.toMatchObject({ kind: 'mount', keep: true })
  })

  describe('with huge pages', () => {
    it('has the kernel set them aside before it mounts', async () => {
      await os.files.put(HUGE_PAGES, '0\n')
      await attach({ fstype: 'hugetlbfs', options: hugeOptions(8) })
      expect(await os.files.readText(HUGE_PAGES)).toBe('4')
      expect(os.mounts.requests[0]).toMatchObject({ type: 'hugetlbfs', data: hugeOptions(8).join(',') })
    })

    it('fails when the kernel has too few, and gives back those it got', async () => {
      await os.files.put(HUGE_PAGES, '1\n')
      const write = os.files.write.bind(os.files)
      os.files.write = (path, data) => write(path, data === '4' ? '3\n' : data)
      const attaching = attach({ fstype: 'hugetlbfs', options: hugeOptions(8) })
      await expect(attaching).rejects.toThrow('Only allocated 3 of 4 hugepages of size 2097152')
      expect(await os.files.readText(HUGE_PAGES)).toBe('1')
    })

    it('adds to what another storage has, and gives back its own part alone', async () => {
      await os.files.put(HUGE_PAGES, '1\n')
      const request = dependenciesOf(os)
      const attachOf = (sizeMib: number) => {
        const storage = storageOf({ fstype: 'hugetlbfs', options: hugeOptions(sizeMib) })
        return ephemeral.attach(storage, request, neverAborted)
      }
      const [first, second] = await Promise.all([attachOf(8), attachOf(4)])
      expect(await os.files.readText(HUGE_PAGES)).toBe('6')
      await first.release?.()
      expect(await os.files.readText(HUGE_PAGES)).toBe('2')
      await second.release?.()
      expect(await os.files.readText(HUGE_PAGES)).toBe('1')
    })

    it('gives back what it got when the mount fails', async () => {
      await os.files.put(HUGE_PAGES, '0\n')
      os.mounts.failWith = () => 'EINVAL'
      await expect(attach({ fstype: 'hugetlbfs', options: hugeOptions(8) })).rejects.toThrow('EINVAL')
      expect(await os.files.readText(HUGE_PAGES)).toBe('0')
    })

    it.each([
      [['size=8388608'], 'no pagesize/size options found'],
      [['pagesize=2097152'], 'no pagesize/size options found'],
      [['pagesize=2M', 'size=8388608'], 'storage option pagesize=2M: not a number of bytes'],
      [['pagesize=0', 'size=8388608'], 'storage option pagesize=0: not a number of bytes'],
      [['pagesize=4096', 'size=8388608'], 'there are no huge pages of size 4096'],
      [['pagesize=2097153', 'size=8388608'], 'there are no huge pages of size 2097153'],
      [['pagesize=2097152', 'size=2097151'], 'storage option size=2097151: less than a page of 2097152'],
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
