import { readFileSync } from 'node:fs'
import { basename, dirname } from 'node:path'

/** depmod's index of a kernel's modules. */
export interface ModuleIndex {
  /** Module files (below /lib/modules/VERSION) and the files each needs, nearest need first: modules.dep. */
  readonly dependencies: ReadonlyMap<string, readonly string[]>
  /** The names of the modules that are built into the kernel: modules.builtin. */
  readonly builtIn: ReadonlySet<string>
}

/** Reads the files that depmod wrote into the folder /lib/modules/VERSION. */
export function readModuleIndex(folder: string): ModuleIndex {
  const dependencies = lines(readFileSync(`${folder}/modules.dep`, 'utf8')).map((line) => {
    const [file = '', needs = ''] = line.split(':')
    return [file, needs.split(' ').filter((need) => need !== '')] as const
  })
  const builtIn = lines(readFileSync(`${folder}/modules.builtin`, 'utf8')).map(moduleName)
  return { dependencies: new Map(dependencies), builtIn: new Set(builtIn) }
}

/**
 * The files of `wanted` (module names, or folders that end in a slash) and of all modules they need, in loading order:
 * each after those that it needs. Throws for a module or folder that the kernel does not have.
 */
export function loadOrder(index: ModuleIndex, wanted: readonly string[]): readonly string[] {
  const byName = new Map([...index.dependencies.keys()].map((file) => [moduleName(file), file]))
  const order = new Set<string>()
  for (const entry of wanted) {
    for (const file of filesOf(entry, index, byName)) {
      // modules.dep lists the whole closure, each module before those that it needs.
      for (const need of (index.dependencies.get(file) ?? []).toReversed()) order.add(need)
      order.add(file)
    }
  }
  return [...order]
}

/** A module's name as the kernel writes it: without folder and suffix, with `_` for `-`. */
function moduleName(file: string): string {
  return basename(file)
    .replace(/\.ko(\.xz|\.zst|\.gz)?$/, '')
    .replaceAll('-', '_')
}

function filesOf(entry: string, index: ModuleIndex, byName: ReadonlyMap<string, string>): readonly string[] {
  if (entry.endsWith('/')) {
    const files = [...index.dependencies.keys()].filter((file) => `${dirname(file)}/` === entry)
    if (files.length === 0) throw new Error(`${entry}: no modules in this folder of the kernel`)
    return files.sort()
  }
  const name = moduleName(entry)
  const file = byName.get(name)
  if (file !== undefined) return [file]
  if (index.builtIn.has(name)) return []
  throw new Error(`${entry}: no such module in the kernel`)
}

function lines(text: string): readonly string[] {
  return text
    .split('\n')
    .map((line) => line.trim())
    .filter((line) => line !== '')
}
