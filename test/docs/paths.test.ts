import { existsSync, globSync, readFileSync } from 'node:fs'
import { basename, dirname, join } from 'node:path'
import { describe, expect, it } from 'vitest'

const ROOT = join(import.meta.dirname, '../..')
const PAGES = globSync(['*.md', 'docs/**/*.md'], { cwd: ROOT })
/** A page may use a bare file name after it has named the folder. */
const FILE_NAMES = new Set(
  globSync(
    ['*.*', '{src,native,rootfs,scripts,test,bench,proto,docs}/**/*.*'].map((pattern) => join(ROOT, pattern)),
  ).map((path) => basename(path)),
)

describe.each(PAGES)('%s', (page) => {
  const text = readFileSync(join(ROOT, page), 'utf8')
  // Code blocks show commands, whose paths need not exist.
  const shown = text.replace(/^```(\w*)\n([\s\S]*?)^```$/gm, (_, language, code) =>
    language === 'mermaid' ? code : '',
  )
  // The files that a page tells its reader to write need not exist either.
  const prose = shown.replaceAll(/^Write `[^`]+`:$/gm, '')

  it('names only files and folders that exist', () => {
    expect(pathsIn(prose).filter((path) => globSync(path, { cwd: ROOT }).length === 0)).toEqual([])
  })

  it('names only sources that exist', () => {
    const names = [...prose.matchAll(/`(?:[\w.-]+\/)*([\w.-]+\.(?:ts|mjs|c|h|proto))(?:`| ›)/g)]
    expect(names.map(([, name = '']) => name).filter((name) => !FILE_NAMES.has(name))).toEqual([])
  })

  it('has no semicolon in a message of a sequence, which would end it', () => {
    const sequences = [...text.matchAll(/^```mermaid\nsequenceDiagram\n([\s\S]*?)^```$/gm)]
    expect(sequences.filter(([, steps = '']) => steps.includes(';'))).toEqual([])
  })

  it('links only to pages and headings that exist', () => {
    const links = [...prose.matchAll(/\]\((?!https?:)([^)#\s]*)(?:#([^)\s]+))?\)/g)]
    const broken = links.filter(([, path = '', anchor]) => {
      const target = path === '' ? join(ROOT, page) : join(ROOT, dirname(page), path)
      return !existsSync(target) || (anchor !== undefined && !anchorsOf(target).includes(anchor))
    })
    expect(broken.map(([link]) => link)).toEqual([])
  })
})

/** Every path below a folder of the project, without the punctuation that ends a sentence. */
function pathsIn(text: string): readonly string[] {
  const paths = text.matchAll(/(?<![\w/.-])(?:src|native|rootfs|scripts|test|bench|proto)\/[\w./*-]*/g)
  return [...paths].map(([path]) => path.replace(/[./]+$/, ''))
}

function anchorsOf(page: string): readonly string[] {
  const headings = readFileSync(page, 'utf8').matchAll(/^#+ (.+)$/gm)
  return [...headings].map(([, heading = '']) =>
    heading
      .toLowerCase()
      .replaceAll(/[^\w\- ]/g, '')
      .replaceAll(' ', '-'),
  )
}
