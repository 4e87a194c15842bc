import { cpSync, mkdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { beforeEach, describe, expect, it } from 'vitest'
import { checkCFormat } from '../../../scripts/checks/check-c-format.ts'
import { projectRoot } from '../../../src/build/project.ts'
import { temporaryFolder } from '../../support/temporary-folder.ts'

describe('checkCFormat', () => {
  let root: string

  beforeEach(() => {
    root = temporaryFolder()
    mkdirSync(join(root, 'native/part'), { recursive: true })
    cpSync(join(projectRoot, '.clang-format'), join(root, '.clang-format'))
  })

  it('accepts a file that is formatted', () => {
    writeFileSync(join(root, 'native/part/good.c'), 'int main(void) {\n  return 0;\n}\n')
    expect(checkCFormat({ root, isCi: false })).toEqual({ ok: true, output: '' })
  })

  it('names a file that is not formatted, and the line', () => {
    writeFileSync(join(root, 'native/part/bad.c'), 'int main(void) {\n   return 0;\n}\n')
    const { ok, output } = checkCFormat({ root, isCi: false })
    expect(ok).toBe(false)
    expect(output).toContain('native/part/bad.c:1:')
  })

  it('is skipped where clang-format is missing, and fails in CI', () => {
    const missing = { root, program: join(root, 'no-such-program') }
    const skipped = checkCFormat({ ...missing, isCi: false })
    expect(skipped.ok).toBe(true)
    expect(skipped.output).toMatch(/^skipped: .*no-such-program cannot be run .*npm test installs it\n$/)
    const failed = checkCFormat({ ...missing, isCi: true })
    expect(failed.ok).toBe(false)
    expect(failed.output).toMatch(/npm test installs it/)
  })
})
