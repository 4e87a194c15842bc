import { createRequire } from 'node:module'
import type * as Yaml from 'yaml'
import { messageOf } from '../../../base/errors.ts'
import { refuse } from '../../spec/component-path.ts'

/** A thousand disks with all their fields have less. */
const MAX_DOCUMENT_BYTES = 512 * 1024

/** Several times as deep as any document, and little enough for the stack of the parser. */
const MAX_DEPTH = 64

/** Enough for lists that repeat a part, and few enough that nothing grows to gigabytes. */
const MAX_ALIASES = 100

const load = createRequire(import.meta.url)

/** The value of YAML or JSON. Throws INVALID_ARGUMENT that says where it is wrong. */
export function parseYaml(source: string): unknown {
  const bytes = Buffer.byteLength(source)
  if (bytes > MAX_DOCUMENT_BYTES) refuse('document', `${bytes} bytes, want at most ${MAX_DOCUMENT_BYTES}`)
  // The parser would take a gigabyte before it says so.
  if (isDeep(source)) refuse('document', `nested deeper than ${MAX_DEPTH}`)
  // Loaded for the first document: an idle daemon is smaller without the parser.
  const { isScalar, LineCounter, parseDocument, visit }: typeof Yaml = load('yaml')
  const lineCounter = new LineCounter()
  try {
    // The parser compares each key with all others of its map.
    const parsed = parseDocument(source, { uniqueKeys: false, strict: true, logLevel: 'error', lineCounter })
    const [fault] = [...parsed.errors, ...parsed.warnings]
    if (fault !== undefined) throw fault
    let aliases = 0
    visit(parsed, {
      Map: (_, map) => checkKeys(map, lineCounter, isScalar),
      Alias: () => {
        aliases += 1
        if (aliases > MAX_ALIASES) refuse('document', `more than ${MAX_ALIASES} aliases`)
      },
    })
    return parsed.toJS({ maxAliasCount: MAX_ALIASES })
  } catch (error) {
    // The first line names the place; the others only show it.
    const [reason = ''] = messageOf(error).split('\n')
    if (reason.startsWith('Excessive alias count'))
      refuse('document', `aliases repeat more than ${MAX_ALIASES} values`)
    return refuse('document', reason.replace(/^document: |:$/g, ''))
  }
}

/** Whether brackets or list items in one line may be nested deeper. Those of texts are counted too. */
function isDeep(source: string): boolean {
  let depth = 0
  for (const character of source) {
    if (character === '[' || character === '{') depth += 1
    else if ((character === ']' || character === '}') && depth > 0) depth -= 1
    if (depth > MAX_DEPTH) return true
  }
  return new RegExp(`(?:[-?:][ \\t]+){${MAX_DEPTH}}`).test(source)
}

function checkKeys(
  map: Yaml.YAMLMap<unknown, unknown>,
  lines: Yaml.LineCounter,
  isScalar: typeof Yaml.isScalar,
): void {
  const names = new Set<unknown>()
  for (const { key } of map.items) {
    if (!isScalar(key)) refuse('document', 'a key of a map is no text')
    const name = String(key.value)
    const { line, col } = lines.linePos((key as Yaml.ParsedNode).range[0])
    if (names.has(name))
      refuse('document', `key ${JSON.stringify(name)} twice at line ${line}, column ${col}`)
    names.add(name)
  }
}
