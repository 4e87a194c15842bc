import { mkdirSync, mkdtempSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { splitTag } from '../../../src/microvm/command-line/check-files.mjs'
import { chooseTag, isOciLayout } from '../../../src/microvm/run/oci-layout.ts'
import { temporaryFolder } from '../../support/temporary-folder.ts'

const folder = temporaryFolder()

/** A layout with images of these tags; undefined stands for an untagged image. */
function layoutWith(...tags: (string | undefined)[]): string {
  const layout = mkdtempSync(join(folder, 'layout-'))
  const manifests = tags.map((tag) => ({
    digest: 'sha256:00',
    annotations: tag === undefined ? {} : { 'org.opencontainers.image.ref.name': tag },
  }))
  writeFileSync(join(layout, 'oci-layout'), '{"imageLayoutVersion":"1.0.0"}')
  writeFileSync(join(layout, 'index.json'), JSON.stringify({ schemaVersion: 2, manifests }))
  return layout
}

describe('isOciLayout', () => {
  it('distinguishes a layout from a root filesystem', () => {
    expect(isOciLayout(layoutWith('latest'))).toBe(true)
    expect(isOciLayout(folder)).toBe(false)
  })
})

describe('chooseTag', () => {
  it('chooses the only image, or the requested one', () => {
    expect(chooseTag(layoutWith('one'), undefined)).toBe('one')
    expect(chooseTag(layoutWith('one', 'two'), 'two')).toBe('two')
  })

  it.each([
    [['one', 'two'], undefined, 'several images, want'],
    [['one'], 'two', 'no tag two, want one of one'],
    [[undefined], undefined, 'no image with a tag'],
  ])('refuses to choose from %j when %s is requested', (tags, asked, sentence) => {
    expect(() => chooseTag(layoutWith(...tags), asked)).toThrow(sentence)
  })
})

describe('splitTag', () => {
  it('splits a tag off a path, and leaves a colon that is part of the path', () => {
    const odd = join(folder, 'a:b')
    mkdirSync(odd)
    expect(splitTag('/x/layout:tag')).toEqual({ path: '/x/layout', tag: 'tag' })
    expect(splitTag(odd)).toEqual({ path: odd, tag: undefined })
    expect(splitTag('/x:y/layout')).toEqual({ path: '/x:y/layout', tag: undefined })
  })
})
