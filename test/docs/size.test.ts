import { globSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'

const DOCS = join(import.meta.dirname, '../../docs')
const MOST_PAGES = 29
const MOST_WORDS = 40_000

/** The pages by topic, without decisions and generated references. */
const pages = globSync('*.md', { cwd: DOCS })

describe('the pages of docs', () => {
  it(`are at most ${MOST_PAGES}, so that a reader finds the right one`, () => {
    expect(pages.length).toBeLessThanOrEqual(MOST_PAGES)
  })

  it(`have at most ${MOST_WORDS} words together with the README`, () => {
    const words = ['../README.md', ...pages].flatMap((page) =>
      readFileSync(join(DOCS, page), 'utf8').trim().split(/\s+/),
    )
    expect(words.length).toBeLessThanOrEqual(MOST_WORDS)
  })
})
