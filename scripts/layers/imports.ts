export interface Import {
  readonly specifier: string
  /** Counted from 1. */
  readonly line: number
  /** `type` imports only types, which are erased; `lazy` is an `import()`. */
  readonly kind: 'value' | 'type' | 'lazy'
}

/** Matches `import … from`, `export … from` and `import '…'` at the start of a line, where the formatter puts them. */
const STATIC = /^(?:import|export)\s+(?<type>type\s)?(?:[\w\s{},*$]*?\sfrom\s+)?'(?<specifier>[^'\n]+)'/gm
const DYNAMIC = /\bimport\(\s*'(?<specifier>[^'\n]+)'/g
const REQUIRE = /^(?:const .* = )?require\('(?<specifier>[^'\n]+)'\)/gm

export function importsOf(source: string): readonly Import[] {
  const statics = matches(source, STATIC, (groups) => (groups.type === undefined ? 'value' : 'type'))
  const requires = matches(source, REQUIRE, () => 'value')
  const dynamics = matches(source, DYNAMIC, () => 'lazy')
  return [...statics, ...requires, ...dynamics]
}

function matches(
  source: string,
  pattern: RegExp,
  kindOf: (groups: Record<string, string | undefined>) => Import['kind'],
): readonly Import[] {
  return [...source.matchAll(pattern)].map((match) => {
    const groups: Record<string, string | undefined> = match.groups ?? {}
    return {
      specifier: groups.specifier ?? '',
      line: source.slice(0, match.index).split('\n').length,
      kind: kindOf(groups),
    }
  })
}
