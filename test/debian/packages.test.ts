import { describe, expect, it } from 'vitest'
import { isNewer, parseStanzas } from '../../src/debian/packages.ts'

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

describe('isNewer', () => {
  it.each([
    ['1.1.15', '1.1.5', true],
    ['1.4.0~rc2-1', '1.4.0-1', false],
    ['1-1', '1-1~bpo13+1', true],
    ['1.0-1', '1.0-1', false],
    ['1.0-1', undefined, true],
    [undefined, '1.0-1', false],
  ])('orders versions as Debian does: %s after %s', async (version, other, expected) => {
    expect(await isNewer(version, other)).toBe(expected)
  })
})
