import { existsSync, readdirSync, readFileSync } from 'node:fs'
import { dirname, join, normalize } from 'node:path'
import { projectRoot } from '../../src/build/project.ts'
import { type Import, importsOf } from '../layers/imports.ts'
import { LAYERS, LAZY_FOLDER, LAZY_FOR, type Layer, PURE_NODE_MODULES } from '../layers/table.ts'

const SKIPPED_FOLDERS = ['node_modules', 'build', 'dist']

export function layerFaults(root: string): readonly string[] {
  return [...absentPaths(root, LAYERS), ...forbiddenImports(root)]
}

export function absentPaths(root: string, layers: readonly Layer[]): readonly string[] {
  const paths = new Set(layers.flatMap(({ folder, imports }) => [folder.replace(/\/\*$/, ''), ...imports]))
  return [...paths]
    .filter((path) => !existsSync(join(root, path)))
    .map((path) => `scripts/layers/table.ts: ${path} does not exist`)
}

export function forbiddenImports(root: string): readonly string[] {
  return codeFiles(root).flatMap((path) => forbiddenImportsOf(path, readFileSync(join(root, path), 'utf8')))
}

export function forbiddenImportsOf(path: string, source: string): readonly string[] {
  const layer = layerOf(path)
  if (layer === undefined) return [`${path}: is in no layer of scripts/layers/table.ts`]
  return importsOf(source).flatMap((found) => {
    const reason = reasonAgainst(path, layer, found)
    return reason === undefined ? [] : [`${path}:${found.line}: ${reason}`]
  })
}

function codeFiles(root: string): readonly string[] {
  return readdirSync(root, { withFileTypes: true })
    .filter((entry) => !entry.name.startsWith('.') && !SKIPPED_FOLDERS.includes(entry.name))
    .flatMap((entry) => {
      if (!entry.isDirectory()) return [entry.name]
      const names = readdirSync(join(root, entry.name), { recursive: true, encoding: 'utf8' })
      return names.map((name) => join(entry.name, name))
    })
    .filter((path) => /\.[cm]?[jt]s$/.test(path))
    .sort()
}

/** The layer with the longest folder that contains `path`; a `*` stands for any name. */
function layerOf(path: string): Layer | undefined {
  return LAYERS.map((layer) => ({ ...layer, folder: concreteFolder(layer.folder, path) }))
    .filter((layer) => isWithin(path, layer.folder))
    .reduce<Layer | undefined>(
      (best, layer) => (best === undefined || layer.folder.length >= best.folder.length ? layer : best),
      undefined,
    )
}

function concreteFolder(folder: string, path: string): string {
  if (!folder.endsWith('/*') || !isWithin(path, folder.slice(0, -2))) return folder
  return path.split('/').slice(0, folder.split('/').length).join('/')
}

function isWithin(path: string, folder: string): boolean {
  return path === folder || path.startsWith(`${folder}/`)
}

function reasonAgainst(path: string, layer: Layer, found: Import): string | undefined {
  const { specifier, kind } = found
  if (specifier.startsWith('.')) {
    return reasonAgainstFile(path, layer, normalize(join(dirname(path), specifier)), kind)
  }
  if (specifier.startsWith('node:')) {
    const allowed = layer.node === 'all' || [...PURE_NODE_MODULES, ...(layer.node ?? [])].includes(specifier)
    return allowed || kind === 'type' ? undefined : `${layer.folder} may not load ${specifier}`
  }
  const name = packageName(specifier)
  if (layer.packages?.includes(name)) return undefined
  return `${layer.folder} may not import the package ${name}`
}

function reasonAgainstFile(
  path: string,
  layer: Layer,
  target: string,
  kind: Import['kind'],
): string | undefined {
  const mustBeLazy = LAZY_FOR.some((folder) => isWithin(path, folder)) && !isWithin(path, LAZY_FOLDER)
  if (mustBeLazy && isWithin(target, LAZY_FOLDER) && kind === 'value') {
    return `${target} must be loaded by import(): it would load the gRPC stack at start-up`
  }
  // A layer inside this one belongs to it, as src/agent/boot to src/agent.
  const own = isWithin(target, layer.folder)
  if (own || layer.imports.some((folder) => isWithin(target, folder))) return undefined
  return `${layer.folder} may not import ${target}`
}

function packageName(specifier: string): string {
  return specifier.split('/', specifier.startsWith('@') ? 2 : 1).join('/')
}

if (import.meta.main) {
  const sentences = layerFaults(projectRoot)
  for (const sentence of sentences) console.error(sentence)
  process.exitCode = sentences.length > 0 ? 1 : 0
}
