import { existsSync, readdirSync, rmSync, utimesSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { afterEach, describe, expect, it } from 'vitest'
import { cached } from '../../src/build/cache.ts'

const NAME = `test-${process.pid}`

/** Builds the result of `value` in a folder with the old times of unpacked archives. */
const resultOf = (value: string) =>
  cached(NAME, { values: [value] }, async (folder) => {
    writeFileSync(join(folder, 'value'), value)
    utimesSync(folder, 0, 0)
  })

describe('the build cache', () => {
  let folder = ''
  const results = () => readdirSync(folder).filter((entry) => entry.startsWith(`${NAME}-`))
  afterEach(() => {
    for (const result of results()) rmSync(join(folder, result), { recursive: true })
  })

  it('keeps the newest results, among them the one that it has just built', async () => {
    for (const value of ['1', '2', '3', '4']) {
      folder = dirname(await resultOf(value))
      // A use makes the folder new.
      await resultOf(value)
    }
    const last = await resultOf('5')
    expect(existsSync(last)).toBe(true)
    expect(results()).toHaveLength(4)
  })

  it('builds each result once', async () => {
    const first = await resultOf('1')
    folder = dirname(first)
    expect(await cached(NAME, { values: ['1'] }, () => Promise.reject(new Error('built again')))).toBe(first)
  })
})
