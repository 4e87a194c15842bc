import { globSync, readFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { projectRoot } from '../src/build/project.ts'
import { importsOf } from './layers/imports.ts'

const PARTS = [
  { name: 'src', files: 'src/**/*.{ts,mjs,cjs}', except: 'src/gen/**' },
  { name: 'native', files: 'native/**/*.{c,h,rs}', except: '' },
  { name: 'scripts', files: '{scripts,bench}/**/*.{ts,mjs}', except: '' },
  { name: 'test', files: 'test/**/*.{ts,mjs,c,go,py}', except: '' },
]

/** A comment, or a string, template or regular expression that may contain comment signs. */
const COMMENT_OR_TEXT =
  /\/\/.*|\/\*[\s\S]*?\*\/|'(?:\\.|[^'\\\n])*'|"(?:\\.|[^"\\])*"|`(?:\\.|[^`\\])*`|(?<=[(,=:[!&|?{};]\s*)\/(?![/*])(?:\\.|\[(?:\\.|[^\]\\\n])*\]|[^/\\\n[])+\//g

export function codeLines(source: string): number {
  const code = source.replace(COMMENT_OR_TEXT, (text) =>
    text.startsWith('//') || text.startsWith('/*') ? text.replace(/[^\n]/g, '') : text,
  )
  return code.split('\n').filter((line) => line.trim() !== '').length
}

export function commentLines(source: string): number {
  const comments = source.match(COMMENT_OR_TEXT) ?? []
  return comments
    .filter((text) => text.startsWith('//') || text.startsWith('/*'))
    .reduce((lines, text) => lines + text.split('\n').length, 0)
}

/**
 * Prints the files of `src` whose only importer is in the same folder, with that file and the lines of both. Such a file
 * belongs into its importer, unless it is a concept of its own.
 */
function printSingleImporters(): void {
  const paths = globSync('src/**/*.ts', { cwd: projectRoot, exclude: (path) => path === 'src/gen' })
  const texts = new Map(paths.map((path) => [path, readFileSync(join(projectRoot, path), 'utf8')]))
  const importers = new Map<string, string[]>()
  for (const [path, text] of texts) {
    const imported = new Set(importsOf(text).map(({ specifier }) => join(dirname(path), specifier)))
    for (const target of imported) importers.set(target, [...(importers.get(target) ?? []), path])
  }
  for (const [path, text] of texts) {
    const [only, ...others] = importers.get(path) ?? []
    if (only === undefined || others.length > 0 || dirname(only) !== dirname(path)) continue
    const lines = codeLines(text) + codeLines(texts.get(only) ?? '')
    console.log(JSON.stringify({ path, importer: only, lines }))
  }
}

/** One line of JSON for each part. */
function printCounts(): void {
  for (const { name, files, except } of PARTS) {
    const sources = globSync(files, {
      cwd: projectRoot,
      exclude: (path) => path === except.replace('/**', ''),
    })
    const texts = sources.map((path) => readFileSync(join(projectRoot, path), 'utf8'))
    const sum = (count: (text: string) => number) => texts.reduce((total, text) => total + count(text), 0)
    const lines = sum((text) => text.split('\n').length - 1)
    console.log(
      JSON.stringify({
        part: name,
        files: texts.length,
        lines,
        code: sum(codeLines),
        comments: sum(commentLines),
      }),
    )
  }
}

/** `npm run count` counts the lines; `-- --single` lists the files with a single importer beside them. */
if (import.meta.main) {
  if (process.argv.includes('--single')) printSingleImporters()
  else printCounts()
}
