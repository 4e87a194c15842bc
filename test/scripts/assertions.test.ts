import { globSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { parseAst } from 'vitest/node'
import { projectRoot } from '../../src/build/project.ts'
import { temporaryFolder } from '../support/temporary-folder.ts'

/** A failing command fails this test. */
const BY_COMMAND = "test/docs/adding-pages.test.ts: 'passes the checks after all of them'"

const ASSERTS = /^(expect|assert)/

describe('the tests', () => {
  it('have an assertion of their own, or call a helper that has one', () => {
    expect(withoutAssertion(projectRoot)).toEqual([BY_COMMAND])
  }, 60_000)

  it('count the assertions of a helper that they import, and no other call', () => {
    const root = temporaryFolder()
    const write = (path: string, text: string) => {
      mkdirSync(dirname(join(root, path)), { recursive: true })
      writeFileSync(join(root, path), text)
    }
    write('test/support/a.ts', 'export function holds() { expect(1).toBe(1) }\nexport function runs() {}')
    const cases = ['holds()', 'here()', 'runs()', 'void 0'].map((call) => `it('${call}', () => ${call})`)
    const helper = 'const here = () => holds()'
    const imported = "import { holds, runs } from './support/a.ts'"
    write('test/a.test.ts', [imported, helper, ...cases, "it.each([1])('%s', () => runs())"].join('\n'))
    const faults = ["'runs()'", "'void 0'", "'%s'"].map((name) => `test/a.test.ts: ${name}`)
    expect(withoutAssertion(root)).toEqual(faults)
  })
})

interface Node {
  readonly type: string
  readonly [field: string]: unknown
}

interface TestFile {
  /** The names that each function of the file uses as calls or arguments. */
  readonly functions: Map<string, ReadonlySet<string>>
  readonly imports: Map<string, readonly [file: string, name: string]>
  readonly cases: { readonly name: string; readonly uses: ReadonlySet<string> }[]
  readonly asserting: Set<string>
}

/** The test cases that neither assert nor call an asserting function of `test`. */
function withoutAssertion(root: string): readonly string[] {
  const paths = globSync('test/**/*.ts', { cwd: root }).sort()
  const files = new Map(paths.map((path) => [path, read(path, readFileSync(join(root, path), 'utf8'))]))
  const asserts = (file: TestFile, names: ReadonlySet<string>) =>
    [...names].some((name) => {
      const [path = '', exported = ''] = file.imports.get(name) ?? []
      return ASSERTS.test(name) || file.asserting.has(name) || files.get(path)?.asserting.has(exported)
    })
  for (let known = -1, now = 0; known !== now; ) {
    known = now
    for (const file of files.values()) {
      for (const [name, uses] of file.functions) if (asserts(file, uses)) file.asserting.add(name)
    }
    now = [...files.values()].reduce((sum, { asserting }) => sum + asserting.size, 0)
  }
  return [...files].flatMap(([path, file]) => {
    if (!path.endsWith('.test.ts')) return []
    return file.cases.filter(({ uses }) => !asserts(file, uses)).map(({ name }) => `${path}: ${name}`)
  })
}

function read(path: string, source: string): TestFile {
  const file: TestFile = { functions: new Map(), imports: new Map(), cases: [], asserting: new Set() }
  const text = (node: Node) => source.slice(Number(node.start), Number(node.end))
  walk(parseAst(source, { lang: 'ts' }) as unknown as Node, (node) => {
    if (node.type === 'ImportDeclaration') {
      const from = join(dirname(path), String(child(node, 'source').value))
      for (const one of children(node.specifiers)) {
        const name = one.type === 'ImportSpecifier' ? text(child(one, 'imported')) : ''
        file.imports.set(text(child(one, 'local')), [from, name])
      }
    }
    if (node.type === 'FunctionDeclaration') file.functions.set(text(child(node, 'id')), namesIn(node))
    if (node.type === 'VariableDeclarator' && isFunction(node.init)) {
      file.functions.set(text(child(node, 'id')), namesIn(node.init))
    }
    if (node.type === 'CallExpression' && /^it\b/.test(text(node))) {
      const [name, ...rest] = children(node.arguments)
      const body = rest.find(isFunction)
      if (name !== undefined && body !== undefined) file.cases.push({ name: text(name), uses: namesIn(body) })
    }
  })
  return file
}

function namesIn(root: Node): ReadonlySet<string> {
  const names = new Set<string>()
  walk(root, (node) => {
    if (node.type === 'Identifier' && ASSERTS.test(String(node.name))) names.add(String(node.name))
    if (node.type !== 'CallExpression') return
    for (const used of [child(node, 'callee'), ...children(node.arguments)]) {
      if (used.type === 'Identifier') names.add(String(used.name))
    }
  })
  return names
}

function walk(node: Node, see: (node: Node) => void): void {
  see(node)
  for (const value of Object.values(node)) for (const one of children(value)) walk(one, see)
}

function children(value: unknown): readonly Node[] {
  return (Array.isArray(value) ? value : [value]).filter(isNode)
}

function child(node: Node, field: string): Node {
  const value = node[field]
  if (!isNode(value)) throw new Error(`${node.type}: no ${field}`)
  return value
}

function isNode(value: unknown): value is Node {
  return typeof value === 'object' && value !== null && 'type' in value
}

function isFunction(value: unknown): value is Node {
  return isNode(value) && /^(ArrowFunction|Function)Expression$/.test(value.type)
}
