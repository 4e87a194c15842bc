import { execFile, execFileSync } from 'node:child_process'
import { once } from 'node:events'
import { copyFileSync, readFileSync, writeFileSync } from 'node:fs'
import { createServer, type Socket } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { type BuildOptions, build, type Plugin } from 'esbuild'
import { HealthCheckResponse, HealthCheckResponse_ServingStatus } from '../gen/health.ts'
import { ListProcessesResponse, Process_Role } from '../gen/microvm/agent/v1/introspection.ts'
import { FrameReader } from '../rpc/ttrpc/frame.ts'
import { decodeRequest, encodeResponseFrame } from '../rpc/ttrpc/messages.ts'
import { AGENT_SOURCES, bundleOptionsSource, codeCacheScript, wrapBundle } from './agent.ts'
import { BUNDLE_OPTIONS } from './bundle-options.ts'
import { cached } from './cache.ts'
import { pinnedNode, projectRoot } from './project.ts'
import { withTemporaryFolder } from './temporary-folder.ts'

const descriptorSource = join(projectRoot, 'src/client/json/descriptor-set.ts')
const startScript = join(import.meta.dirname, 'ctl-start.cjs')
const descriptors = join(projectRoot, 'src/gen/descriptors.binpb')

/** Files below /usr/share, and the arguments with which agent-ctl prints each of them. */
export const CTL_PAGES = {
  'man/man1/agent-ctl.1': ['man'],
  'bash-completion/completions/agent-ctl': ['completion', 'bash'],
  'zsh/vendor-completions/_agent-ctl': ['completion', 'zsh'],
  'fish/vendor_completions.d/agent-ctl.fish': ['completion', 'fish'],
} as const

export const CTL_INSTALLED = {
  start: 'agent-ctl.cjs',
  bundle: 'agent-ctl-bundle.cjs',
  cache: 'agent-ctl-bundle.cache',
} as const

/** Returns the folder with `agent-ctl.cjs` (one file), the files to install in `installed`, and the pages. */
export async function buildAgentCtl(): Promise<string> {
  const sources = [...AGENT_SOURCES, 'client', 'ctl'].map((name) => join(projectRoot, 'src', name))
  const inputs = {
    files: [
      ...sources,
      import.meta.filename,
      bundleOptionsSource,
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
    wrapBundle(bundle)
    const cache = join(installed, CTL_INSTALLED.cache)
    await writeCodeCache(bundle, cache)
    copyFileSync(startScript, join(installed, CTL_INSTALLED.start))
    const tool = join(target, 'agent-ctl.cjs')
    writeFileSync(tool, oneFile(bundle, cache), { mode: 0o755 })
    for (const [path, words] of Object.entries(CTL_PAGES)) {
      const page = execFileSync(pinnedNode(), [tool, ...words], { env: {} })
      writeFileSync(join(target, path.replaceAll('/', '-')), page)
    }
  })
}

/** The cache is of a run of `ps`, so it has the functions of a run. */
async function writeCodeCache(bundle: string, cache: string): Promise<void> {
  await withAgentOfOneProcess(async (socket) => {
    const words = ['--random-seed=1', codeCacheScript, bundle, cache]
    await promisify(execFile)(pinnedNode(), [...words, '-a', `unix://${socket}`, 'ps'], { env: {} })
    execFileSync(pinnedNode(), words, { env: {} })
  })
}

/** Calls `use` with the path of a socket on which a small ttRPC server answers the calls of `agent-ctl ps`. */
async function withAgentOfOneProcess(use: (socket: string) => Promise<void>): Promise<void> {
  await withTemporaryFolder(tmpdir(), async (folder) => {
    const path = join(folder, 'agent.sock')
    const server = createServer(answer).listen(path)
    try {
      await once(server, 'listening')
      await use(path)
    } finally {
      server.close()
    }
  })
}

const ANSWERS: Readonly<Record<string, Uint8Array>> = {
  Check: HealthCheckResponse.encode({ status: HealthCheckResponse_ServingStatus.SERVING }).finish(),
  ListProcesses: ListProcessesResponse.encode(
    ListProcessesResponse.fromPartial({
      processes: [
        {
          role: Process_Role.INIT,
          containerId: 'web',
          pid: 100,
          parentPid: 1,
          name: 'sleep',
          state: 'S',
          waitsIn: 'hrtimer_nanosleep',
          startedAtMs: 1n,
          threads: 1,
          residentBytes: 1_000_000n,
        },
      ],
    }),
  ).finish(),
}

function answer(socket: Socket): void {
  const refuse = () => socket.destroy()
  const reader = new FrameReader({
    onFrame: ({ streamId }, payload) => {
      const response = ANSWERS[decodeRequest(payload).method]
      if (response === undefined) refuse()
      else socket.write(encodeResponseFrame(streamId, response))
    },
    onOversizedFrame: refuse,
  })
  socket.on('data', (chunk) => reader.push(chunk)).on('error', refuse)
}

/** The start script, then the code cache and the bundle in comments. */
function oneFile(bundle: string, cache: string): string {
  const maker = '[process.platform, process.arch, process.versions.v8].join(" ")'
  const source = readFileSync(bundle, 'latin1').replaceAll('\n', '\n//')
  return `${readFileSync(startScript, 'utf8')}
// cache of ${execFileSync(pinnedNode(), ['--print', maker], { encoding: 'utf8', env: {} }).trim()}
//${readFileSync(cache, 'base64')}
// bundle
//${source}
`
}

/** Puts the descriptors into the bundle, because the tool is a single file. */
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

function bundleOptions(outfile: string): BuildOptions {
  return {
    ...BUNDLE_OPTIONS,
    entryPoints: [join(projectRoot, 'src/ctl/main.ts')],
    outfile,
    plugins: [inlineDescriptors],
    format: 'cjs',
    target: 'node20',
    define: { 'import.meta.dirname': '__dirname', 'import.meta.filename': '__filename' },
  }
}
