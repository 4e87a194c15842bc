import { describe, expect, it } from 'vitest'
import { sourcesList } from '../../scripts/apt/configuration.ts'
import { parseStanzas } from '../../scripts/apt/stanzas.ts'

const MACHINE = [
  'https://vendor.example/apt nodistro main',
  'http://mirror.example/debian/ bookworm main',
  'http://mirror.example/debian/ bookworm-updates main',
  'http://mirror.example/debian-security/ bookworm-security main',
  '',
].join('\n')

const OPTIONS = '[arch=amd64 signed-by=/usr/share/keyrings/debian-archive-keyring.gpg]'

describe('sourcesList', () => {
  it('asks the machine’s own mirrors for another release, with its security archive', () => {
    expect(sourcesList(MACHINE, 'trixie')).toBe(
      `deb ${OPTIONS} http://mirror.example/debian/ trixie main\n` +
        `deb ${OPTIONS} http://mirror.example/debian-security/ trixie-security main\n`,
    )
  })

  it('knows that sid has no security archive', () => {
    expect(sourcesList(MACHINE, 'sid')).toBe(`deb ${OPTIONS} http://mirror.example/debian/ sid main\n`)
  })

  it('says what to do on a machine without a Debian archive', () => {
    expect(() => sourcesList('http://vendor.example/ubuntu noble main\n', 'bookworm')).toThrow(
      '/etc/apt/sources.list',
    )
  })
})

describe('parseStanzas', () => {
  it('reads every version that apt-cache shows', () => {
    const text = ['2', '1']
      .map((n) => `Package: runc\nVersion: ${n}\nDescription: x\n y\nArchitecture: amd64\nSHA256: a${n}\n`)
      .join('\n')
    expect(parseStanzas(text)).toEqual([
      { name: 'runc', version: '2', architecture: 'amd64', sha256: 'a2' },
      { name: 'runc', version: '1', architecture: 'amd64', sha256: 'a1' },
    ])
  })

  it('refuses a description without a checksum', () => {
    expect(() => parseStanzas('Package: runc\nVersion: 1\nArchitecture: amd64\n')).toThrow('SHA256')
  })
})
