import { execFileSync } from 'node:child_process'
import { linkSync, mkdirSync, readFileSync, statSync, symlinkSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { beforeEach, describe, expect, it } from 'vitest'
import { openLineFile } from '../../../src/os/files/line-file.ts'
import { temporaryFolder } from '../../support/temporary-folder.ts'

describe('openLineFile', () => {
  let folder: string
  let path: string
  beforeEach(() => {
    folder = temporaryFolder()
    path = join(folder, 'lines')
  })

  it('makes a file that only its owner can read, and appends', async () => {
    const file = await openLineFile(path)
    await file.append('one\n')
    await file.append('two\n')
    await file.close()
    expect(readFileSync(path, 'utf8')).toBe('one\ntwo\n')
    expect(statSync(path).mode & 0o777).toBe(0o600)
  })

  it('empties the file of an earlier run, and takes it for itself', async () => {
    writeFileSync(path, 'before', { mode: 0o666 })
    await (await openLineFile(path)).close()
    expect(readFileSync(path, 'utf8')).toBe('')
    expect(statSync(path).mode & 0o777).toBe(0o600)
  })

  it.each([
    { what: 'a symbolic link', make: (other: string) => symlinkSync(other, path) },
    { what: 'a second name of a file', make: (other: string) => linkSync(other, path) },
    { what: 'a folder', make: () => mkdirSync(path) },
    { what: 'a fifo', make: () => execFileSync('mkfifo', [path]) },
  ])('refuses $what', async ({ make }) => {
    const other = join(folder, 'other')
    writeFileSync(other, 'kept')
    make(other)
    await expect(openLineFile(path)).rejects.toThrow(path)
    expect(readFileSync(other, 'utf8')).toBe('kept')
  })
})
