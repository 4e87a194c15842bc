import { describe, expect, it } from 'vitest'
import type { FetchedPackage } from '../../src/debian/packages.ts'
import { chooseRuntime, lackOf, type RuntimeSource } from '../../src/image/runtimes.ts'

const runc = (suite: FetchedPackage['suite'], version: string): FetchedPackage => ({
  ...{ name: 'runc', suite, version, architecture: 'amd64', sha256: '', path: '' },
})
const [OF_FORKY, OF_SID, OF_TRIXIE] = [runc('forky', '1.3.7'), runc('sid', '1.4.0'), runc('trixie', '1.1.15')]

/** Chooses from a mirror that has these packages; those with a lack are not for the image. */
async function choose(
  mirror: readonly FetchedPackage[],
  lacks: ReadonlyMap<FetchedPackage, string> = new Map(),
) {
  const lines: string[] = []
  const source: RuntimeSource = {
    async fetch(suite) {
      const found = mirror.filter((each) => each.suite === suite)
      if (found.length === 0) throw new Error(`Debian ${suite}: no package runc`)
      return found
    },
    lackOf: async ([found]) => found && lacks.get(found),
  }
  const chosen = await chooseRuntime('runc', source, (line) => lines.push(line))
  return { chosen, lines }
}

describe('chooseRuntime', () => {
  const all = [OF_FORKY, OF_SID, OF_TRIXIE]

  it('takes forky’s, and says nothing', async () => {
    expect(await choose(all)).toEqual({ chosen: [OF_FORKY], lines: [] })
  })

  it('takes sid’s where forky’s does not run in the image, with one line', async () => {
    expect(await choose(all, new Map([[OF_FORKY, 'it needs glibc 2.43']]))).toEqual({
      chosen: [OF_SID],
      lines: ['runc of Debian forky is not taken: it needs glibc 2.43'],
    })
  })

  it('takes sid’s where the mirror has none of forky', async () => {
    const { chosen, lines } = await choose([OF_SID, OF_TRIXIE])
    expect(chosen).toEqual([OF_SID])
    expect(lines).toEqual(['runc of Debian forky is not taken: Debian forky: no package runc'])
  })

  it('takes Debian 13’s as the last one, with a warning', async () => {
    const { chosen, lines } = await choose(all, new Map([OF_FORKY, OF_SID].map((each) => [each, 'x'])))
    expect(chosen).toEqual([OF_TRIXIE])
    expect(lines.at(-1)).toBe("warning: no newer runc runs in the image: taking Debian 13's")
  })

  it('takes none where Debian has none, with a warning', async () => {
    const { chosen, lines } = await choose([])
    expect(chosen).toEqual([])
    expect(lines.at(-1)).toBe('warning: the image has no runc: Debian trixie: no package runc')
  })
})

describe('lackOf', () => {
  it('names the advisory of a version that is not the locked one', async () => {
    expect(await lackOf('runc', [runc('sid', '1.3.2+ds1-1')], [])).toBe(
      '1.3.2+ds1-1 is open to CVE-2025-31133',
    )
  })
})
