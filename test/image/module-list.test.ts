import { describe, expect, it } from 'vitest'
import { loadOrder, type ModuleIndex } from '../../src/image/module-list.ts'

/** As modules.dep of a kernel has it: each file's needs, nearest first. */
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
  it('puts a module after all it needs, and each once', () => {
    expect(loadOrder(index, ['virtio_blk', 'virtio'])).toEqual([
      'kernel/virtio/virtio.ko',
      'kernel/virtio/virtio_ring.ko',
      'kernel/block/virtio_blk.ko',
    ])
  })

  it('takes - for _ and ignores compression', () => {
    expect(loadOrder(index, ['crc32c_intel'])).toEqual(['kernel/crypto/crc32c-intel.ko.xz'])
  })

  it('takes every module of a folder, but not of folders below', () => {
    expect(loadOrder(index, ['kernel/filter/'])).toEqual(['kernel/filter/a.ko', 'kernel/filter/b.ko'])
  })

  it('skips what is built in', () => {
    expect(loadOrder(index, ['ext4'])).toEqual([])
  })

  it.each(['nonesuch', 'kernel/nonesuch/'])('names %s when the kernel does not have it', (entry) => {
    expect(() => loadOrder(index, [entry])).toThrow(entry)
  })
})
