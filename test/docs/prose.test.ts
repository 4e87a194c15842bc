import { execFileSync } from 'node:child_process'
import { globSync, readFileSync } from 'node:fs'
import { basename, join } from 'node:path'
import { describe, expect, it } from 'vitest'

const ROOT = join(import.meta.dirname, '../..')
const LONGEST_SENTENCE_WORDS = 35

/** Phrases that stop a reader, and their replacements. */
const BANNED: readonly (readonly [phrase: RegExp, better: string])[] = [
  [/\bagents? before(?: this one)?\b(?! it| the| an?\b)/i, 'the previous agent'],
  [/\bagent of the time before\b/i, 'the previous agent'],
  [/\bfor want of\b/i, 'because … ran out, without'],
  [/\bwhom\b/i, 'name the person or program'],
  [/\bin vain\b/i, 'without success'],
  [/\bgone on with\b/i, 'restored'],
  [/\bnone any more\b/i, 'name the state: removed, destroyed'],
  [/\bbehaviou?r spec\b|\bspec [A-I]\.\d/i, 'a man page, a file of the kernel, an RFC or a page of docs/'],
]

const filesOf = (pattern: string | readonly string[]) =>
  globSync(pattern, { cwd: ROOT }).filter(
    (file) => !file.startsWith('src/gen/') && file !== 'test/docs/prose.test.ts',
  )
const CODE = filesOf('{src,native,scripts,bench,test}/**/*.{ts,mjs,cjs,c,h}')
const FILES = [...CODE, ...filesOf(['proto/**/*.proto', '*.md', 'docs/**/*.md'])]

/** A comment: the lines that hold nothing else, joined. */
interface Comment {
  readonly place: string
  readonly text: string
}

function commentsOf(file: string): readonly Comment[] {
  const comments: { place: string; text: string }[] = []
  let inside: 'line' | 'block' | undefined
  for (const [index, line] of readFileSync(join(ROOT, file), 'utf8').split('\n').entries()) {
    const begins = inside === 'block' ? undefined : /^\s*(\/\/|\/\*)/.exec(line)?.[1]
    if (begins === undefined && inside !== 'block') {
      inside = undefined
      continue
    }
    const text = line.replace(/^\s*(?:\/\*\*?|\*\/|\*|\/\/)?\s?/, '').replace(/\s*\*\/\s*$/, '')
    if (begins === '/*' || (begins === '//' && inside !== 'line'))
      comments.push({ place: `${file}:${index + 1}`, text: '' })
    const last = comments.at(-1)
    // An empty line, a tag or an item begins a sentence of its own.
    if (last !== undefined) last.text += /^(?:$|@|- |\d\. |\|)/.test(text) ? `. ${text}` : ` ${text}`
    inside = begins === '//' ? 'line' : line.includes('*/') ? undefined : 'block'
  }
  return comments
}

const COMMENTS = CODE.flatMap(commentsOf)

const wordsIn = (sentence: string) =>
  sentence
    .replace(/`[^`]*`/g, 'code')
    .split(/\s+/)
    .filter((word) => /\w/.test(word)).length

/** Files of this repository, by their paths and by their names. */
const EVERY_FILE = execFileSync('git', ['ls-files'], { cwd: ROOT, encoding: 'utf8' }).trim().split('\n')
const KNOWN = new Set(EVERY_FILE.flatMap((file) => [file, basename(file), ...foldersOf(file)]))

function foldersOf(file: string): readonly string[] {
  const parts = file.split('/').slice(0, -1)
  return parts.map((_, index) => parts.slice(0, index + 1).join('/'))
}

function codeOf(file: string): string {
  return readFileSync(join(ROOT, file), 'utf8').replace(/\/\*[\s\S]*?\*\/|^\s*\/\/.*$/gm, '')
}

function hasHeading(page: string, anchor: string): boolean {
  const path = EVERY_FILE.find((file) => file === page || basename(file) === page)
  const headings = path === undefined ? [] : readFileSync(join(ROOT, path), 'utf8').matchAll(/^#+ (.+)$/gm)
  return [...headings].some(
    ([, heading = '']) =>
      heading
        .toLowerCase()
        .replaceAll(/[^\w\- ]/g, '')
        .replaceAll(' ', '-') === anchor,
  )
}

/** Paths below our folders, and bare names of TypeScript files and pages. */
const NAMED =
  /(?<![\w./-])(?:(?:src|test|native|docs|scripts|bench|proto|rootfs)\/[\w./-]+|[\w-]+\.(?:ts|md))(?![\w/*…])/g

describe('the prose of the repository', () => {
  it.each(BANNED)('does not say %s', (phrase, better) => {
    const found = FILES.flatMap((file) =>
      readFileSync(join(ROOT, file), 'utf8')
        .split('\n')
        .flatMap((line, index) => (phrase.test(line) ? [`${file}:${index + 1}: ${line.trim()}`] : [])),
    )
    expect(found, `write instead: ${better}`).toEqual([])
  })

  it(`has no sentence of more than ${LONGEST_SENTENCE_WORDS} words in a comment`, () => {
    const long = COMMENTS.flatMap(({ place, text }) =>
      text
        .split(/[.!?](?=\s|$)/)
        .filter((sentence) => wordsIn(sentence) > LONGEST_SENTENCE_WORDS)
        .map((sentence) => `${place}:${sentence}`),
    )
    expect(long).toEqual([])
  })

  it('names only files that exist in its comments', () => {
    const unknown = COMMENTS.flatMap(({ place, text }) =>
      [...text.matchAll(NAMED)]
        .map(([name]) => name.replace(/[./-]+$/, ''))
        .filter((name) => !KNOWN.has(name) && !/\b[A-Z]{2,}\b/.test(name))
        .map((name) => `${place}: ${name}`),
    )
    expect(unknown).toEqual([])
  })

  it('names only headings that their pages have in its comments', () => {
    const unknown = COMMENTS.flatMap(({ place, text }) =>
      [...text.matchAll(/([\w./-]+\.md)#([\w-]+)/g)]
        .filter(([, page = '', anchor = '']) => !hasHeading(page.replace(/^(?:\.\.\/)+/, ''), anchor))
        .map(([name]) => `${place}: ${name}`),
    )
    expect(unknown).toEqual([])
  })

  it('links in its comments only to names of the same file', () => {
    const unknown = COMMENTS.flatMap(({ place, text }) =>
      [...text.matchAll(/\{@link (\w+)/g)]
        .map(([, name = '']) => name)
        .filter((name) => !new RegExp(`\\b${name}\\b`).test(codeOf(place.replace(/:\d+$/, ''))))
        .map((name) => `${place}: ${name}`),
    )
    expect(unknown).toEqual([])
  })
})
