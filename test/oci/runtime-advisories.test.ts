import { describe, expect, it } from 'vitest'
import { openAdvisories, type RuntimeName } from '../../src/oci/runtime-advisories.ts'

const NOVEMBER = ['CVE-2025-31133', 'CVE-2025-52565', 'CVE-2025-52881']
const ALL = ['CVE-2024-21626', ...NOVEMBER]

const idsOf = (runtime: RuntimeName, version: string) => openAdvisories(runtime, version).map(({ id }) => id)

describe('openAdvisories', () => {
  it.each([
    ['1.0.0-rc95', ALL],
    ['1.1.11', ALL],
    ['1.1.12', NOVEMBER],
    ['1.2.0-rc.1', NOVEMBER],
    ['1.2.7', NOVEMBER],
    ['1.2.8', []],
    ['1.3.0', NOVEMBER],
    ['1.3.2', NOVEMBER],
    ['1.3.3', []],
    ['1.3.6', []],
    ['1.4.0-rc.2', NOVEMBER],
    ['1.4.0-rc.3', []],
    ['1.4.0', []],
    ['1.5.0-rc.1', []],
    ['2.0', []],
  ])('knows the advisories that affect upstream runc %s', (version, ids) => {
    expect(idsOf('runc', version)).toEqual(ids)
  })

  it.each([
    ['1.0.0~rc93+ds1-5+deb11u2', ALL],
    ['1.0.0~rc93+ds1-5+deb11u3', NOVEMBER],
    ['1.1.5+ds1-1', ALL],
    ['1.1.5+ds1-1+deb12u1', NOVEMBER],
    ['1.1.5+ds1-1+deb12u2', NOVEMBER],
    ['1.1.5+ds1-1+deb11u1', ALL],
    ['1.1.15+ds1-2+b4', NOVEMBER],
    ['1.3.6+ds1-1', []],
    ['1.4.0~rc2+ds1-1', NOVEMBER],
    ['1.4.0~rc3+ds1-1', []],
  ])("knows the advisories that affect Debian's runc %s, with Debian's own fixes", (version, ids) => {
    expect(idsOf('runc', version)).toEqual(ids)
  })

  it.each(['1.8.1', '1.8.1-1+deb12u1', '1.21-1', '1.28-1'])('knows no advisory for crun %s', (version) => {
    expect(idsOf('crun', version)).toEqual([])
  })

  it.each(['', 'x', 'v1.2.3', '1', '1.2x', '1.2.3.4'])('refuses %j, which is no version', (version) => {
    expect(() => openAdvisories('runc', version)).toThrow(`runtime version "${version}"`)
  })
})
