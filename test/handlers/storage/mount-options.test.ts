import { describe, expect, it } from 'vitest'
import { parseMountOptions } from '../../../src/handlers/storage/mount-options.ts'

describe('parseMountOptions', () => {
  it('separates flags from the options of the file system', () => {
    expect(parseMountOptions(['nosuid', 'size=64M', 'ro', 'mode=1777'])).toEqual({
      flags: ['nosuid', 'ro'],
      data: 'size=64M,mode=1777',
    })
  })

  it.each([
    ['bind', ['bind']],
    ['dirsync', ['dirsync']],
    ['iversion', ['i_version']],
    ['mand', ['mandlock']],
    ['noatime', ['noatime']],
    ['nodev', ['nodev']],
    ['nodiratime', ['nodiratime']],
    ['noexec', ['noexec']],
    ['nosuid', ['nosuid']],
    ['rbind', ['bind', 'rec']],
    ['unbindable', ['unbindable']],
    ['runbindable', ['unbindable', 'rec']],
    ['private', ['private']],
    ['rprivate', ['private', 'rec']],
    ['shared', ['shared']],
    ['rshared', ['shared', 'rec']],
    ['slave', ['slave']],
    ['rslave', ['slave', 'rec']],
    ['relatime', ['relatime']],
    ['remount', ['remount']],
    ['ro', ['ro']],
    ['silent', ['silent']],
    ['strictatime', ['strictatime']],
    ['sync', ['synchronous']],
  ])('sets flags by %s', (word, flags) => {
    expect(parseMountOptions([word])).toEqual({ flags, data: '' })
  })

  it.each([
    ['async', 'sync'],
    ['atime', 'noatime'],
    ['dev', 'nodev'],
    ['diratime', 'nodiratime'],
    ['exec', 'noexec'],
    ['loud', 'silent'],
    ['noiversion', 'iversion'],
    ['nomand', 'mand'],
    ['norelatime', 'relatime'],
    ['nostrictatime', 'strictatime'],
    ['rw', 'ro'],
    ['suid', 'nosuid'],
  ])('clears by %s what %s set, and keeps what is set later', (clearing, setting) => {
    expect(parseMountOptions([setting, clearing]).flags).toEqual([])
    expect(parseMountOptions([clearing, setting]).flags).toHaveLength(1)
    expect(parseMountOptions([clearing])).toEqual({ flags: [], data: '' })
  })

  it('ignores the option defaults', () => {
    expect(parseMountOptions(['ro', 'defaults'])).toEqual({ flags: ['ro'], data: '' })
  })

  it('refuses loop', () => {
    expect(() => parseMountOptions(['ro', 'loop'])).toThrow('mount option loop')
  })
})
