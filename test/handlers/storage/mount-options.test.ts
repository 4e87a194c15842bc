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
    ['iversion', 'i_version'],
    ['mand', 'mandlock'],
    ['sync', 'synchronous'],
  ])('sets by %s the flag that the kernel calls %s', (word, flag) => {
    expect(parseMountOptions([word])).toEqual({ flags: [flag], data: '' })
  })

  it.each(['bind', 'unbindable', 'private', 'shared', 'slave'])(
    'sets by r%s what the word without the r sets, for all mounts below too',
    (word) => {
      const { flags } = parseMountOptions([word])
      expect(flags).toEqual([word])
      expect(parseMountOptions([`r${word}`])).toEqual({ flags: [word, 'rec'], data: '' })
    },
  )

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
