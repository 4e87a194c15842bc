import { describe, expect, it } from 'vitest'
import { messageOf } from '../../src/base/errors.ts'
import { isNewer, parseStanzas, readLists } from '../../src/debian/packages.ts'

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

describe('readLists', () => {
  const UPDATE = ['apt-get', '--quiet', 'update', '--error-on=any']

  async function read(...failures: readonly string[]) {
    const [runs, left]: [string[][], string[]] = [[], [...failures]]
    const run = async (command: string, args: readonly string[]) => {
      runs.push([command, ...args])
      const failure = left.shift()
      if (failure !== undefined) throw new Error(failure)
      return ''
    }
    const lines: string[] = []
    const failed = await readLists({ suite: 'sid', run }, (line) => lines.push(line), 0).catch(messageOf)
    return { runs, failed, lines }
  }

  it.each([
    [
      'a mirror that lags behind',
      'Release file is expired',
      [...UPDATE, '-o', 'Acquire::Check-Valid-Until=false'],
    ],
    ['a mirror that is being renewed', 'E: Some index files failed to download.', UPDATE],
  ])('reads the lists of %s once more, and says so', async (_of, failure, again) => {
    const { runs, failed, lines } = await read(failure)
    expect(failed).toBeUndefined()
    expect(runs).toEqual([UPDATE, again])
    expect(lines).toEqual([
      'reading the package lists of Debian sid',
      expect.stringContaining("the mirror's lists"),
    ])
  })

  it.each([
    ['another failure', ['no space left'], 1],
    ['the second failure', ['index files failed to download', 'index files failed to download'], 2],
  ])('rejects with %s', async (_which, failures, runs) => {
    const given = await read(...failures)
    expect(given).toMatchObject({ failed: failures.at(-1) })
    expect(given.runs).toHaveLength(runs)
  })
})
