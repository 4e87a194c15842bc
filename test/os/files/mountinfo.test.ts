import { describe, expect, it } from 'vitest'
import { parseMountLine } from '../../../src/os/files/mountinfo.ts'

/** From a machine with a shared root, a bind mount, odd names and a mount without source. */
const RECORDED = [
  '21 1 254:1 / / rw,relatime shared:1 master:7 - ext4 /dev/vda1 rw,discard',
  '22 21 0:20 / /proc rw,nosuid,nodev,noexec,relatime - proc proc rw',
  String.raw`90 21 0:55 / /mnt/with\040space\011tab\012line\134back\043hash rw - tmpfs a\040source rw,size=4k`,
  '91 21 0:56 /sub /mnt/träger ro,nosuid - tmpfs  rw',
  '92 21 4095:1048575 / /mnt/large rw - ext4 /dev/large rw',
  '',
].join('\n')

describe('parseMountLine', () => {
  it('returns one entry per line, with any tags before the dash', () => {
    const entries = parsed()
    expect(entries.map(({ mountPoint }) => mountPoint).slice(0, 2)).toEqual(['/', '/proc'])
    expect(entries[0]).toEqual({
      id: 21,
      parentId: 1,
      mountPoint: '/',
      type: 'ext4',
      source: '/dev/vda1',
      options: 'rw,relatime',
      isReadOnly: false,
      major: 254,
      minor: 1,
    })
  })

  it('decodes the octal escapes of the kernel', () => {
    const entry = parsed()[2]
    expect(entry?.mountPoint).toBe('/mnt/with space\ttab\nline\\back#hash')
    expect(entry?.source).toBe('a source')
  })

  it('reads an empty source', () => {
    expect(parsed()[3]).toMatchObject({
      type: 'tmpfs',
      source: '',
      mountPoint: '/mnt/träger',
    })
  })

  it('reads large device numbers', () => {
    expect(parsed()[4]).toMatchObject({ major: 4095, minor: 1048575 })
  })

  it('names an invalid line', () => {
    expect(() => parseMountLine('21 1 254:1 / /')).toThrow('mountinfo: invalid line "21 1 254:1 / /"')
  })
})

function parsed() {
  return RECORDED.trimEnd().split('\n').map(parseMountLine)
}
