import { describe, expect, it } from 'vitest'
import type { Suite } from '../../src/debian/apt.ts'
import { checkRuntimes } from '../../src/image/check-runtimes.ts'

describe('checkRuntimes', () => {
  const check = (suite: Suite, ...packages: readonly string[]) => {
    const lines: string[] = []
    const parts = packages
      .map((each) => each.split('='))
      .map(([name = '', version = '']) => ({ name, version, suite }))
    checkRuntimes(parts, (line) => lines.push(line))
    return lines
  }

  it('accepts runtimes without a known break-out, and checks nothing else', () => {
    expect(check('forky', 'runc=1.3.6+ds1-1', 'crun=1.28-1', 'libc6=1.1.5')).toEqual([])
  })

  it('refuses a runc that the list names, with the way to a newer one', () => {
    expect(() => check('bookworm', 'kmod=30', 'runc=1.1.5+ds1-1+deb12u1')).toThrow(
      'runc 1.1.5+ds1-1+deb12u1: containers can break out of it by CVE-2025-31133, CVE-2025-52565, CVE-2025-52881, want 1.2.8, 1.3.3, 1.4.0-rc.3 or later: node scripts/lock-packages.ts',
    )
    expect(() => check('sid', 'runc=1.3.2+ds1-1')).toThrow('runc 1.3.2+ds1-1')
  })

  it("takes Debian 13's own, with a warning", () => {
    expect(check('trixie', 'runc=1.1.15+ds1-2+b4')).toEqual([
      'warning: runc 1.1.15+ds1-2+b4: containers can break out of it by CVE-2025-31133, CVE-2025-52565, CVE-2025-52881',
    ])
  })
})
