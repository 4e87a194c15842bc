import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { testFiles } from '../../../scripts/test/test-files.ts'

describe('testFiles', () => {
  let root = ''
  beforeEach(() => {
    root = mkdtempSync(join(tmpdir(), 'test-files-'))
    for (const path of [
      'test/os/files/files.test.ts',
      'test/host/runc.test.ts',
      'test/vm/boot.test.ts',
      'test/vm/boot.ts',
    ]) {
      mkdirSync(dirname(join(root, path)), { recursive: true })
      writeFileSync(join(root, path), '')
    }
  })
  afterEach(() => {
    rmSync(root, { recursive: true })
  })

  it.each([
    ['unit', 'test', ['test/os/files/files.test.ts']],
    ['host', 'test', ['test/host/runc.test.ts']],
    ['vm', 'boot', ['test/vm/boot.test.ts']],
    ['unit', 'boot', []],
  ] as const)('finds the files of %s that match %s', (group, pattern, files) => {
    expect(testFiles(root, group, [pattern])).toEqual(files)
  })
})
