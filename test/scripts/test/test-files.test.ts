import { mkdirSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { beforeEach, describe, expect, it } from 'vitest'
import { testFiles } from '../../../scripts/test/test-files.ts'
import { temporaryFolder } from '../../support/temporary-folder.ts'

describe('testFiles', () => {
  let root = ''
  beforeEach(() => {
    root = temporaryFolder()
    for (const path of [
      'test/os/files/files.test.ts',
      'test/host/runc.test.ts',
      'test/hostile/host/runc.test.ts',
      'test/fuzz/frames.test.ts',
      'test/kills/steps.test.ts',
      'test/vm/boot.test.ts',
      'test/vm/boot.ts',
    ]) {
      mkdirSync(dirname(join(root, path)), { recursive: true })
      writeFileSync(join(root, path), '')
    }
  })

  it.each([
    ['unit', 'test', ['test/os/files/files.test.ts']],
    ['host', 'test', ['test/host/runc.test.ts']],
    ['hostile', 'test', ['test/hostile/host/runc.test.ts']],
    ['fuzz', 'test', ['test/fuzz/frames.test.ts']],
    ['kills', 'test', ['test/kills/steps.test.ts']],
    ['vm', 'boot', ['test/vm/boot.test.ts']],
    ['unit', 'boot', []],
  ] as const)('finds the files of %s that match %s', (group, pattern, files) => {
    expect(testFiles(root, group, [pattern])).toEqual(files)
  })
})
