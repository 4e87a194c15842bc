import { execFileSync } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { beforeEach, describe, expect, it } from 'vitest'
import { AREAS, checkCommits, commitFaults } from '../../../scripts/checks/check-commits.ts'
import { temporaryFolder } from '../../support/temporary-folder.ts'

const faultsOf = (subject: string, parents = 1) => commitFaults({ id: 'abc1234', subject, parents })

describe('commitFaults', () => {
  it.each([
    "native: let the addon's files depend in one direction",
    'src: put files into folders by the thing they serve',
    'rpc: serve Introspection/GetVersion, and list what becomes of each RPC',
    'oci-runtime: bring the exit status along',
    "boot: pass vminit's channel by number",
  ])('accepts "%s"', (subject) => expect(faultsOf(subject)).toEqual([]))

  it.each([
    [
      'hotplug: have the kernel look again for a device that comes after its first look',
      '80 characters, want at most 72',
    ],
    ['figures of three runs', 'no area, want "area: imperative summary"'],
    ['os, rpc: read sysctls whole', 'no area, want "area: imperative summary"'],
    ['Docs: name the tests', 'no area, want "area: imperative summary"'],
    ['uevents: read several in one call', 'unknown area "uevents", want one of CONTRIBUTING.md\'s list'],
    ['docs: added a page', 'summary is not imperative, want "add", not "added" or "adds"'],
    ['docs: adds a page', 'summary is not imperative, want "add", not "added" or "adds"'],
    ['docs: adding a page', 'summary is not imperative, want "add", not "added" or "adds"'],
    ['docs: add a page.', 'ends with a period, want none'],
  ])('refuses "%s"', (subject, fault) =>
    expect(faultsOf(subject)).toEqual([`abc1234 "${subject}": ${fault}`]),
  )

  it('refuses a merge, whatever its subject', () => {
    expect(faultsOf("Merge branch 'main' into storage", 2)).toEqual([
      'abc1234 "Merge branch \'main\' into storage": merge commit, want a rebase',
    ])
  })
})

describe('checkCommits', () => {
  let root: string

  const git = (...args: readonly string[]) =>
    execFileSync('git', ['-C', root, '-c', 'user.name=a', '-c', 'user.email=a@b', ...args], {
      encoding: 'utf8',
      stdio: ['ignore', 'pipe', 'pipe'],
    }).trim()
  const commit = (subject: string) => {
    git('commit', '--quiet', '--allow-empty', '-m', subject)
    return git('rev-parse', 'HEAD')
  }

  beforeEach(() => {
    root = temporaryFolder()
    git('init', '--quiet')
  })

  it('checks only the commits after the given one', () => {
    const since = commit('From before the rules.')
    commit('docs: add a page')
    expect(checkCommits({ root, since })).toEqual({ ok: true, output: '' })
    commit('one more page')
    const { ok, output } = checkCommits({ root, since })
    expect(ok).toBe(false)
    expect(output).toMatch(/^[0-9a-f]+ "one more page": no area, want .*\n$/)
  })

  it('is skipped in one line where the commits are missing', () => {
    commit('From before the rules.')
    const { ok, output } = checkCommits({ root, since: '0123456789abcdef0123456789abcdef01234567' })
    expect(ok).toBe(true)
    expect(output).toBe('skipped: this copy of the repository does not reach back to 0123456\n')
  })
})

it('CONTRIBUTING.md lists the areas', () => {
  const page = readFileSync(join(import.meta.dirname, '../../../CONTRIBUTING.md'), 'utf8')
  const [, section = ''] = page.split('## Commits\n')
  const list = section.split('\n').filter((line) => line.startsWith('| '))
  const listed = list.flatMap((line) => [...line.matchAll(/`([a-z-]+)`/g)].map(([, area]) => area))
  expect(listed.sort()).toEqual([...AREAS].sort())
})
