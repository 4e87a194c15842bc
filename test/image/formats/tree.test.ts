import { describe, expect, it } from 'vitest'
import { completeTree, directory, fileOf, link } from '../../../src/image/formats/tree.ts'

describe('completeTree', () => {
  it('adds missing parents and sorts each folder before its entries', () => {
    const paths = completeTree([fileOf('usr/bin/x', ''), directory('dev')]).map((entry) => entry.path)
    expect(paths).toEqual(['dev', 'usr', 'usr/bin', 'usr/bin/x'])
  })

  it('keeps the mode of a parent that is listed', () => {
    const tree = completeTree([fileOf('root/x', ''), directory('root', 0o700)])
    expect(tree[0]).toEqual(directory('root', 0o700))
  })

  it('refuses a path that is listed twice', () => {
    expect(() => completeTree([fileOf('init', 'a'), link('init', 'b')])).toThrow('init: listed twice')
  })

  it('refuses an entry below a link', () => {
    expect(() => completeTree([link('bin', 'usr/bin'), fileOf('bin/x', '')])).toThrow(
      'bin/x: its parent bin is a link, want a directory',
    )
  })
})
