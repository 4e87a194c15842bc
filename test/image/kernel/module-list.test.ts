import { describe, expect, it } from 'vitest'
import { loadOrder, type ModuleIndex } from '../../../src/image/kernel/module-list.ts'

/** As in the kernel's modules.dep: the dependencies of each file, nearest first. */
const index: ModuleIndex = {
  dependencies: new Map([
    ['kernel/virtio/virtio.ko', []],
    ['kernel/virtio/virtio_ring.ko', []],
    ['kernel/block/virtio_blk.ko', ['kernel/virtio/virtio_ring.ko', 'kernel/virtio/virtio.ko']],
    ['kernel/crypto/crc32c-intel.ko.xz', []],
    ['kernel/filter/b.ko', []],
    ['kernel/filter/a.ko', []],
    ['kernel/filter/deeper/c.ko', []],
  ]),
  builtIn: new Set(['ext4']),
}

describe('loadOrder', () => {
  it('puts a module after its dependencies, and lists each once', () => {
    expect(loadOrder(index, ['virtio_blk', 'virtio'])).toEqual([
      'kernel/virtio/virtio.ko',
      'kernel/virtio/virtio_ring.ko',
      'kernel/block/virtio_blk.ko',
    ])
  })

  it('treats - as _ and ignores compression', () => {
    expect(loadOrder(index, ['crc32c_intel'])).toEqual(['kernel/crypto/crc32c-intel.ko.xz'])
  })

  it('lists every module of a folder, without those of folders below', () => {
    expect(loadOrder(index, ['kernel/filter/'])).toEqual(['kernel/filter/a.ko', 'kernel/filter/b.ko'])
  })

  it('skips built-in modules', () => {
    expect(loadOrder(index, ['ext4'])).toEqual([])
  })

  it.each(['nonesuch', 'kernel/nonesuch/'])('names %s when the kernel lacks it', (entry) => {
    expect(() => loadOrder(index, [entry])).toThrow(entry)
  })
})
