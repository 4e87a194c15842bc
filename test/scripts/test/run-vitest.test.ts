import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { runVitest } from '../../../scripts/test/run-vitest.ts'
import { buildRoot } from '../../../src/build/project.ts'

const CONFIG = `export default { test: { projects: [{ test: { name: 'seeded', include: ['**/*.test.ts'] } }] } }`

describe('runVitest', () => {
  let root = ''
  let output = ''
  beforeEach(() => {
    output = ''
    // Below the project, so that the seeded tests find vitest itself.
    mkdirSync(buildRoot, { recursive: true })
    root = mkdtempSync(join(buildRoot, 'seeded-'))
    writeFileSync(join(root, 'vitest.config.ts'), CONFIG)
  })
  afterEach(() => {
    rmSync(root, { recursive: true })
  })

  it('counts passed, failed and skipped tests, these with their reasons', async () => {
    seed('mixed', [
      `it('passes', () => {})`,
      `it('fails', () => expect(1).toBe(2))`,
      `it('has no luck', ({ skip }) => skip('no KVM here'))`,
    ])
    expect(await run()).toEqual({
      passed: 1,
      failed: 1,
      skipped: [{ name: 'mixed.test.ts > has no luck', reason: 'no KVM here' }],
      files: [{ path: 'mixed.test.ts', seconds: expect.any(Number) }],
      onceMore: ['mixed.test.ts'],
    })
    expect(output).toContain('FAIL mixed.test.ts: 1 passed, 1 skipped')
    expect(output).toContain('AssertionError: expected 1 to be 2')
  })

  it('counts a failing hook, and names the tests that it skipped', async () => {
    seed('hook', [`beforeAll(() => { throw new Error('no') })`, `it('waits', () => {})`])
    const counts = await run()
    expect(counts).toMatchObject({ passed: 0, failed: 1, skipped: [{ name: 'hook.test.ts > waits' }] })
  })

  it('counts a file that cannot be loaded', async () => {
    seed('broken', [`import './missing.ts'`, `it('passes', () => {})`])
    expect(await run()).toMatchObject({ passed: 0, failed: 1 })
  })

  it('counts an error outside of any test', async () => {
    seed('loose', [`it('passes', async () => { Promise.reject(new Error('lost')) })`])
    expect(await run()).toMatchObject({ passed: 1, failed: 1 })
  })

  it('counts a test process that dies as a failure', async () => {
    seed('passes', [`it('passes', () => {})`])
    writeFileSync(join(root, 'vitest.config.ts'), 'process.kill(process.pid, "SIGKILL")')
    expect(await run()).toEqual({ passed: 0, failed: 1, skipped: [], files: [], onceMore: [] })
    expect(output).toContain('the test process ended early (SIGKILL)')
  })

  it('runs a file once more when it fails, but none whose method is chance, and counts its second run', async () => {
    seed('test/vm/locked', [
      `import { existsSync, writeFileSync } from 'node:fs'`,
      `let second = false`,
      `beforeAll(() => {
        second = existsSync('booted')
        writeFileSync('booted', '')
      })`,
      `it('is told of the guest', () => {})`,
      `it('locks up', async () => {
        if (!second) Promise.reject(new Error('lost'))
        expect(second).toBe(true)
      })`,
    ])
    seed('test/hostile/vm/wrong', [`it('fails', () => expect(1).toBe(2))`, `it('passes', () => {})`])
    seed('test/kills/other', [`it('fails', () => expect(1).toBe(2))`])
    seed('test/fuzz/other', [`it('fails', () => expect(1).toBe(2))`])
    const counts = await run()
    expect(counts).toMatchObject({ passed: 3, failed: 3, skipped: [] })
    expect(counts.files).toHaveLength(4)
    expect(counts.onceMore.toSorted()).toEqual(['test/hostile/vm/wrong.test.ts', 'test/vm/locked.test.ts'])
    expect(output).toContain('outside of any test of test/vm/locked.test.ts')
    expect(output.match(/^(FAIL|ok {2}) \S+/gm)?.toSorted()).toEqual([
      'FAIL test/fuzz/other.test.ts:',
      'FAIL test/hostile/vm/wrong.test.ts:',
      'FAIL test/hostile/vm/wrong.test.ts:',
      'FAIL test/kills/other.test.ts:',
      'FAIL test/vm/locked.test.ts:',
      'ok   test/vm/locked.test.ts:',
    ])
  })

  it('runs only the failed suites of such a file once more, and counts the others by their first run', async () => {
    seed('test/vm/suites', [
      `import { appendFileSync, readFileSync } from 'node:fs'`,
      `const runs = () => readFileSync('runs', 'utf8')`,
      `describe('one (of 2)', () => {
        it('passes', () => appendFileSync('runs', 'a'))
        it('is skipped', ({ skip }) => skip('no KVM here'))
      })`,
      `describe('two (of 2)', () => {
        describe('inside', () => it('fails first', () => {
          appendFileSync('runs', 'b')
          expect(runs().split('b')).toHaveLength(3)
        }))
        it('belongs to it', () => appendFileSync('runs', 'c'))
      })`,
    ])
    const skipped = [{ name: 'test/vm/suites.test.ts > one (of 2) > is skipped', reason: 'no KVM here' }]
    expect(await run()).toMatchObject({ passed: 3, failed: 0, skipped })
    expect(readFileSync(join(root, 'runs'), 'utf8')).toBe('abcbc')
  })

  it('counts the failures of a suite that has another name in the second run', async () => {
    seed('test/host/lucky', [
      `describe(\`seed \${Math.random()}\`, () => it('fails', () => expect(1).toBe(2)))`,
      `describe('other', () => it('passes', () => {}))`,
    ])
    expect(await run()).toMatchObject({ passed: 1, failed: 1 })
  })

  it('ends tests that take too long, and names them', async () => {
    seed('slow', [
      `import { spawn } from 'node:child_process'`,
      `import { writeFileSync } from 'node:fs'`,
      `it('passes', () => {})`,
      `it('never ends', () => {
        // What a test leaves may hold its output open.
        spawn('sleep', ['30'], { stdio: 'inherit', detached: true }).unref()
        writeFileSync('begun', '')
        return new Promise(() => {})
      }, 60_000)`,
    ])
    const late = new AbortController()
    const ended = run('slow', late.signal)
    await expect.poll(() => existsSync(join(root, 'begun'))).toBe(true)
    late.abort()
    expect(await ended).toMatchObject({ failed: 1 })
    expect(output).toContain('FAIL slow.test.ts: out of time in never ends')
  })

  it('runs only the files that match a pattern', async () => {
    seed('one', [`it('passes', () => {})`])
    seed('two', [`it('passes', () => {})`])
    expect(await run('two')).toMatchObject({ passed: 1, failed: 0 })
  })

  function seed(name: string, lines: readonly string[]): void {
    const source = [`import { beforeAll, describe, expect, it } from 'vitest'`, ...lines]
    const file = join(root, `${name}.test.ts`)
    mkdirSync(dirname(file), { recursive: true })
    writeFileSync(file, `${source.join('\n')}\n`)
  }

  function run(pattern?: string, late?: AbortSignal) {
    const write = (text: string) => {
      output += text
    }
    const patterns = pattern === undefined ? [] : [pattern]
    return runVitest({ root, project: 'seeded', patterns, write, ...(late && { late }) })
  }
})
