import { describe, expect, it } from 'vitest'
import type { MountFlag } from '../../../src/os/files/mounts.ts'
import { overlaySettings } from '../../../src/os/files/overlay-settings.ts'

const settingsOf = (
  data: string,
  flags: readonly MountFlag[] = [],
  type = 'overlay',
  release = '6.12.1-amd64',
) => overlaySettings({ source: 'overlay', target: '/layered', type, data, flags }, release)

describe('overlaySettings', () => {
  it('gives each lower layer a setting of its own, in their order', () => {
    expect(settingsOf('index=off,lowerdir=/a:/b,upperdir=/u,workdir=/w,xino=off').settings).toEqual([
      ...['index=off', 'lowerdir+=/a', 'lowerdir+=/b', 'upperdir=/u', 'workdir=/w', 'xino=off'],
    ])
  })

  it('takes commas, colons and backslashes of paths as mount(2) does', () => {
    expect(settingsOf(String.raw`lowerdir=/a\:b:/c\,d:/e\\:f,upperdir=/u\,v,volatile`).settings).toEqual([
      ...['lowerdir+=/a:b', 'lowerdir+=/c,d', 'lowerdir+=/e\\', 'lowerdir+=f'],
      ...[String.raw`upperdir=/u\,v`, 'volatile'],
    ])
  })

  it('marks data-only layers', () => {
    expect(settingsOf('lowerdir=/a:/b::/c::/d').settings).toEqual([
      ...['lowerdir+=/a', 'lowerdir+=/b', 'datadir+=/c', 'datadir+=/d'],
    ])
  })

  it('has flags as settings of the file system and as attributes of the mount', () => {
    expect(settingsOf('lowerdir=/a', ['ro', 'nosuid', 'nodev', 'noexec', 'noatime', 'synchronous'])).toEqual({
      settings: ['lowerdir+=/a', 'ro', 'sync'],
      attributes: 0x1f,
    })
    expect(settingsOf('lowerdir=/a', ['strictatime', 'nodiratime']).attributes).toBe(0xa0)
  })

  it('accepts 500 layers, 255 bytes of each path, and what fits into a line of mountinfo', () => {
    const layers = (count: number, bytes: number) => Array(count).fill('/'.padEnd(bytes, 'x')).join(':')
    expect(settingsOf(`lowerdir=${layers(500, 100)}`).settings).toHaveLength(500)
    expect(settingsOf(`lowerdir=${layers(200, 255)}`).settings).toHaveLength(200)
    expect(() => settingsOf(`lowerdir=${layers(501, 8)}`)).toThrow('501 lower layers, want at most 500')
    const tooLong = /^mount \/layered: 256 bytes in lowerdir\+=\/x+…, want at most 255$/
    expect(() => settingsOf(`lowerdir=${layers(2, 256)}`)).toThrow(tooLong)
    expect(() => settingsOf(`lowerdir=${layers(500, 200)}`)).toThrow(
      '108496 bytes of options, want at most 60000',
    )
    const spaces = '/'.padEnd(100, ' ')
    expect(() => settingsOf(`lowerdir=${Array(200).fill(spaces).join(':')}`)).toThrow('want at most 60000')
  })

  it.each([
    ['6.1.0-56-cloud-amd64', 'UNIMPLEMENTED', ' before Linux 6.7'],
    ['6.6.99', 'UNIMPLEMENTED', ' before Linux 6.7'],
  ])('refuses what Linux %s does not take', (release, code, end) => {
    const message = `mount /layered: 5009 bytes of options, want at most 4095${end}`
    const long = `lowerdir=${'x'.repeat(5000)}`
    expect(() => settingsOf(long, [], 'overlay', release)).toThrow(expect.objectContaining({ code, message }))
  })

  it.each([
    ['tmpfs', []],
    ['overlay', ['remount']],
    ['overlay', ['bind']],
  ] as const)('refuses for %s with the flags %j what mount(2) does not take', (type, flags) => {
    const message = 'mount /layered: 5000 bytes of options, want at most 4095'
    expect(() => settingsOf('x'.repeat(5000), flags, type)).toThrow(
      expect.objectContaining({ code: 'INVALID_ARGUMENT', message }),
    )
  })
})
