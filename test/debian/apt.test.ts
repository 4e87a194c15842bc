import { describe, expect, it } from 'vitest'
import { sourcesList } from '../../src/debian/apt.ts'

const MACHINE = [
  'https://vendor.example/apt nodistro main',
  'http://mirror.example/debian/ bookworm main',
  'http://mirror.example/debian/ bookworm-updates main',
  'http://mirror.example/debian-security/ bookworm-security main',
  '',
].join('\n')

const OPTIONS = '[arch=amd64 signed-by=/usr/share/keyrings/debian-archive-keyring.gpg]'

describe('sourcesList', () => {
  it('uses the machine’s own mirrors for another release, with its security archive', () => {
    expect(sourcesList(MACHINE, 'trixie')).toBe(
      `deb ${OPTIONS} http://mirror.example/debian/ trixie main\n` +
        `deb ${OPTIONS} http://mirror.example/debian-security/ trixie-security main\n`,
    )
  })

  it('adds no security archive for sid', () => {
    expect(sourcesList(MACHINE, 'sid')).toBe(`deb ${OPTIONS} http://mirror.example/debian/ sid main\n`)
  })

  it('explains what to do on a machine without a Debian archive', () => {
    expect(() => sourcesList('http://vendor.example/ubuntu noble main\n', 'bookworm')).toThrow(
      '/etc/apt/sources.list',
    )
  })
})
