import { mkdtempSync, readdirSync, readFileSync, rmSync, statSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { generate, generatedRoot } from '../../src/build/generate.ts'

describe('src/gen', () => {
  let folder = ''
  beforeEach(() => {
    folder = mkdtempSync(join(tmpdir(), 'gen-'))
  })
  afterEach(() => {
    rmSync(folder, { recursive: true })
  })

  it('is what a new generation from proto/ gives, byte for byte', () => {
    generate(folder)
    expect(filesOf(generatedRoot)).toEqual(filesOf(folder))
  })
})

/** Name and content of every file below `folder`. */
function filesOf(folder: string): Record<string, string> {
  const names = readdirSync(folder, { recursive: true, encoding: 'utf8' }).sort()
  return Object.fromEntries(
    names
      .filter((name) => statSync(join(folder, name)).isFile())
      .map((name) => [name, readFileSync(join(folder, name), 'latin1')]),
  )
}
