import { describe, expect, it } from 'vitest'
import { parseList } from '../../src/image/packages.ts'

describe('parseList', () => {
  it('skips comments and empty lines', () => {
    expect(parseList('# disks\nvirtio_blk\n\n  erofs\n')).toEqual(['virtio_blk', 'erofs'])
  })
})
