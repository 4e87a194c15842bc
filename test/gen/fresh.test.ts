import { readdirSync, readFileSync, statSync } from 'node:fs'
import { join } from 'node:path'
import { beforeEach, describe, expect, it } from 'vitest'
import { generate, generatedRoot } from '../../src/build/generate.ts'
import { temporaryFolder } from '../support/temporary-folder.ts'

describe('src/gen', () => {
  let folder = ''
  beforeEach(() => {
    folder = temporaryFolder()
  })

  it('equals the code generated from proto/, byte for byte', () => {
    generate(folder)
    expect(filesOf(generatedRoot)).toEqual(filesOf(folder))
  })
})

function filesOf(folder: string): Record<string, string> {
  const names = readdirSync(folder, { recursive: true, encoding: 'utf8' }).sort()
  return Object.fromEntries(
    names
      .filter((name) => statSync(join(folder, name)).isFile())
      .map((name) => [name, readFileSync(join(folder, name), 'latin1')]),
  )
}
