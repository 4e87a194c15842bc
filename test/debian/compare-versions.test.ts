import { describe, expect, it } from 'vitest'
import { compareVersions } from '../../src/debian/compare-versions.ts'

/** Versions from the oldest to the newest, as `dpkg --compare-versions` has them. */
const ASCENDING = [
  '~~',
  '~~a',
  '~',
  '',
  '0.9',
  '1~rc1',
  '1~rc1+ds1-1',
  '1~rc2-1',
  '1~rc10-1',
  '1-0.1',
  '1-1~bpo13+1',
  '1-1~deb13u1',
  '1-1',
  '1-1+b4',
  '1-1+deb12u1',
  '1-1+deb12u2',
  '1-1+deb12u10',
  '1-1.1',
  '1a-1',
  '1+ds1-1',
  '1.1.5+ds1-1',
  '1.1.15+ds1-2',
  '1.3.6+ds1-1',
  '1.4.0~rc2+ds1-1',
  '1.4.0-1',
  '2.9',
  '2.10-1-1',
  '2.36',
  '10000000000000000000001',
  '10000000000000000000002',
  'a',
  '1:0.1',
  '2:0',
]

/** Other ways to write the same version. */
const EQUAL = [
  ['1', '1-0'],
  ['1', '0:1'],
  ['1.02-1', '1.2-01'],
] as const

describe('compareVersions', () => {
  it('orders versions of Debian packages', () => {
    const shuffled = ASCENDING.toSorted((a, b) => a.split('').reverse().join('').localeCompare(b))
    expect(shuffled.toSorted(compareVersions)).toEqual(ASCENDING)
    for (const [index, version] of ASCENDING.entries()) {
      for (const [place, other] of ASCENDING.entries())
        expect(Math.sign(compareVersions(version, other)), `${version} ${other}`).toBe(
          Math.sign(index - place),
        )
    }
  })

  it.each(EQUAL)('takes %s for %s', (a, b) => {
    expect(compareVersions(a, b)).toBe(0)
    expect(compareVersions(b, a)).toBe(0)
  })
})
