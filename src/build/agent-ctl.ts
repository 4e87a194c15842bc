import { execFileSync } from 'node:child_process'
import { copyFileSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { type BuildOptions, build, type Plugin } from 'esbuild'
import { AGENT_SOURCES } from './agent.ts'
import { cached } from './cache.ts'
import { pinnedNode, projectRoot } from './project.ts'

const descriptorSource = join(projectRoot, 'src/ctl/methods/descriptor-set.ts')
const startScript = join(import.meta.dirname, 'ctl-start.cjs')
const codeCacheScript = join(import.meta.dirname, 'write-code-cache.cjs')
const descriptors = join(projectRoot, 'src/gen/descriptors.binpb')

/** The oldest Node that has what the bundle uses, such as `Promise.withResolvers`. */
const OLDEST_NODE = 22

/** Where programs of the system look for what belongs to `agent-ctl`, below /usr/share; each is printed by the tool. */
export const CTL_PAGES = {
  'man/man1/agent-ctl.1': ['man'],
  'bash-completion/completions/agent-ctl': ['completion', 'bash'],
  'zsh/vendor-completions/_agent-ctl': ['completion', 'zsh'],
  'fish/vendor_completions.d/agent-ctl.fish': ['completion', 'fish'],
} as const

/** The files of the tool as it is installed: it starts from V8's code cache. */
export const CTL_INSTALLED = {
  start: 'agent-ctl.cjs',
  bundle: 'agent-ctl-bundle.cjs',
  cache: 'agent-ctl-bundle.cache',
} as const

/**
 * Builds agent-ctl and returns its folder: `agent-ctl.cjs`, one file that needs only Node, the files to install in
 * `installed`, and the pages.
 */
export async function buildAgentCtl(): Promise<string> {
  const sources = [...AGENT_SOURCES, 'client', 'ctl'].map((name) => join(projectRoot, 'src', name))
  const inputs = {
    files: [
      ...sources,
      import.meta.filename,
      startScript,
      codeCacheScript,
      join(projectRoot, 'package.json'),
      join(projectRoot, 'package-lock.json'),
    ],
  }
  return await cached('agent-ctl', inputs, async (target) => {
    const installed = join(target, 'installed')
    const bundle = join(installed, CTL_INSTALLED.bundle)
    await build(bundleOptions(bundle))
    const tool = join(target, 'agent-ctl.cjs')
    writeFileSync(tool, `${BANNER}\n${readFileSync(bundle, 'utf8')}`, { mode: 0o755 })
    // Changes the bundle.
    const cache = join(installed, CTL_INSTALLED.cache)
    const words = ['-a', 'unix:///nonexistent', 'ps']
    execFileSync(pinnedNode(), ['--random-seed=1', codeCacheScript, bundle, cache, ...words], {
      env: {},
      // It says that there is no agent.
      stdio: 'ignore',
    })
    copyFileSync(startScript, join(installed, CTL_INSTALLED.start))
    for (const [path, words] of Object.entries(CTL_PAGES)) {
      const page = execFileSync(pinnedNode(), [tool, ...words], { env: {} })
      writeFileSync(join(target, path.replaceAll('/', '-')), page)
    }
  })
}

/** Puts the descriptors into the bundle, which has no other file beside it. */
const inlineDescriptors: Plugin = {
  name: 'inline-descriptors',
  setup: ({ onLoad }) => {
    onLoad({ filter: /descriptor-set\.ts$/ }, ({ path }) => {
      if (path !== descriptorSource) return undefined
      const text = readFileSync(descriptors, 'base64')
      return { contents: `export const descriptorSet = () => Buffer.from('${text}', 'base64')`, loader: 'js' }
    })
  },
}

/** Begins the one file, so that an older Node says why it cannot run it. */
const BANNER = `#!/usr/bin/env node
if (Number(process.versions.node.split('.')[0]) < ${OLDEST_NODE}) {
  process.stderr.write('agent-ctl: Node.js ' + process.versions.node + ' is too old, want ${OLDEST_NODE} or newer\\n')
  process.exit(2)
}`

function bundleOptions(outfile: string): BuildOptions {
  return {
    entryPoints: [join(projectRoot, 'src/ctl/main.ts')],
    outfile,
    plugins: [inlineDescriptors],
    bundle: true,
    platform: 'node',
    format: 'cjs',
    target: `node${OLDEST_NODE}`,
    // Identifiers are not shortened, which keeps stack traces readable.
    minifySyntax: true,
    minifyWhitespace: true,
    legalComments: 'none',
    define: { 'import.meta.dirname': '__dirname', 'import.meta.filename': '__filename' },
    absWorkingDir: projectRoot,
    logLevel: 'warning',
  }
}
