import { cpSync, existsSync, mkdirSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs'
import { basename, dirname, join } from 'node:path'
import { pathToFileURL } from 'node:url'
import { type BuildOptions, build, type Plugin, transform } from 'esbuild'
import { BUNDLE_OPTIONS } from './bundle-options.ts'
import { cached } from './cache.ts'
import { nodeFlags, SERVERS } from './node-flags.mjs'
import { pinnedNode, projectRoot } from './project.ts'

const sources = join(projectRoot, 'src')
const TARGET = 'node24'

/**
 * Writes `microvm` into `folder` and returns its path: the commands of `./microvm` from few large modules, which take less
 * memory and load sooner than the sources. It belongs to this checkout, whose Node, packages and build folder it uses.
 */
export async function writeMicrovm(folder: string): Promise<string> {
  const built = await buildModules()
  // Those of earlier builds stay, because a running daemon loads modules at their first use.
  const modules = join(folder, basename(built))
  if (!existsSync(modules)) copyFolder(built, modules)
  const path = join(folder, 'microvm')
  const fresh = `${path}.tmp-${process.pid}`
  writeFileSync(fresh, startScript(modules, join(folder, 'compile-cache')), { mode: 0o755 })
  renameSync(fresh, path)
  return path
}

async function buildModules(): Promise<string> {
  const inputs = {
    files: [sources, ...['package.json', 'package-lock.json'].map((name) => join(projectRoot, name))],
    values: [projectRoot],
  }
  return await cached('microvm', inputs, async (target) => {
    await build(bundleOptions(target))
  })
}

function bundleOptions(outdir: string): BuildOptions {
  return {
    ...BUNDLE_OPTIONS,
    entryPoints: { main: join(sources, 'microvm/main.ts') },
    outdir,
    outExtension: { '.js': '.mjs' },
    plugins: [placesOfSources, esbuildApart],
    splitting: true,
    // grpc-js would load it for its services admin and channelz, which this program does not serve.
    external: ['@grpc/proto-loader'],
    format: 'esm',
    target: TARGET,
    // For the packages that are CommonJS.
    banner: {
      js: "import { createRequire as requireOf } from 'node:module'; const require = requireOf(import.meta.url);",
    },
  }
}

/** A module finds files by the place of its source. */
const placesOfSources: Plugin = {
  name: 'places-of-sources',
  setup: ({ onLoad }) => {
    onLoad({ filter: /\.(ts|mjs)$/ }, async ({ path }) => {
      const source = readFileSync(path, 'utf8')
      if (!path.startsWith(`${sources}/`) || !source.includes('import.meta.')) return undefined
      const { code } = await transform(source, {
        loader: path.endsWith('.ts') ? 'ts' : 'js',
        target: TARGET,
        define: {
          'import.meta.dirname': JSON.stringify(dirname(path)),
          'import.meta.filename': JSON.stringify(path),
          'import.meta.url': JSON.stringify(pathToFileURL(path).href),
        },
      })
      return { contents: code, loader: 'js' }
    })
  },
}

/** It cannot be bundled. */
const esbuildApart: Plugin = {
  name: 'esbuild-apart',
  setup: ({ onResolve }) => {
    const path = pathToFileURL(join(projectRoot, 'node_modules/esbuild/lib/main.js')).href
    onResolve({ filter: /^esbuild$/ }, () => ({ path, external: true }))
  },
}

/** Copies it whole or not at all. */
function copyFolder(from: string, to: string): void {
  const fresh = `${to}.tmp-${process.pid}`
  mkdirSync(dirname(to), { recursive: true })
  rmSync(fresh, { recursive: true, force: true })
  cpSync(from, fresh, { recursive: true })
  try {
    renameSync(fresh, to)
  } catch (error) {
    rmSync(fresh, { recursive: true })
    // Another process has copied the same modules meanwhile.
    if (!existsSync(to)) throw error
  }
}

/** Without the compiled code a command starts later, and a daemon takes more memory. */
function startScript(modules: string, compileCache: string): string {
  const cases = SERVERS.map((name) => `${name}) flags='${nodeFlags(name).join(' ')}' ;;`)
  return `#!/bin/sh
case "$1" in
${cases.join('\n')}
*) flags='${nodeFlags().join(' ')}' ;;
esac
[ -n "$NODE_COMPILE_CACHE" ] || NODE_COMPILE_CACHE=${quoted(compileCache)}
export NODE_COMPILE_CACHE
exec ${quoted(pinnedNode())} $flags ${quoted(join(modules, 'main.mjs'))} "$@"
`
}

/** A word of sh. */
function quoted(word: string): string {
  return `'${word.replaceAll("'", "'\\''")}'`
}
