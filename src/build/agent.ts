import { execFileSync, spawn } from 'node:child_process'
import { once } from 'node:events'
import {
  copyFileSync,
  existsSync,
  mkdirSync,
  readFileSync,
  renameSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs'
import { Module } from 'node:module'
import { connect } from 'node:net'
import { tmpdir } from 'node:os'
import { basename, dirname, join, relative } from 'node:path'
import { createInterface } from 'node:readline'
import { type BuildOptions, build, type Plugin } from 'esbuild'
import { messageOf } from '../base/errors.ts'
import { AgentServiceDefinition } from '../gen/agent.ts'
import { clientFor } from '../rpc/client.ts'
import { ttrpcClient } from '../rpc/ttrpc/client.ts'
import { BUNDLE_OPTIONS } from './bundle-options.ts'
import { cached } from './cache.ts'
import { buildNative, type NativeParts } from './native.ts'
import { buildRoot, pinnedNode, projectRoot } from './project.ts'
import { withTemporaryFolder } from './temporary-folder.ts'

/** Has the layout of /usr/lib/microvm-agent in the guest. */
const agentRoot = join(buildRoot, 'agent')
const descriptors = join(projectRoot, 'src/gen/descriptors.binpb')
const entryPoint = join(projectRoot, 'src/agent/main.ts')
const startScript = join(import.meta.dirname, 'agent-start.cjs')
export const bundleOptionsSource = join(import.meta.dirname, 'bundle-options.ts')
export const codeCacheScript = join(import.meta.dirname, 'write-code-cache.cjs')

/** The folders of `src` that make up the agent; the others run on the host. */
export const AGENT_SOURCES = [
  ...['agent', 'base', 'gen', 'handlers', 'hotplug', 'oci', 'os', 'rpc', 'settings', 'state'],
]

/** Builds `build/agent` unless it is up to date: bundles, code cache, node and native parts. Returns its path. */
export async function buildAgent(): Promise<string> {
  const native = await buildNative()
  const inputs = {
    files: [
      ...AGENT_SOURCES.map((name) => join(projectRoot, 'src', name)).filter((folder) => existsSync(folder)),
      import.meta.filename,
      bundleOptionsSource,
      startScript,
      codeCacheScript,
      join(projectRoot, 'package.json'),
      join(projectRoot, 'package-lock.json'),
    ],
    // The paths contain a hash of their content.
    values: [native.vminit, native.addon].map((path) => relative(buildRoot, path)),
  }
  const folder = await cached('agent', inputs, (target) => fillAgentFolder(target, native))
  pointTo(agentRoot, folder)
  return agentRoot
}

async function fillAgentFolder(target: string, native: NativeParts): Promise<void> {
  await bundleAgent(target)
  copyFileSync(startScript, join(target, 'agent.cjs'))
  copyFileSync(native.vminit, join(target, 'vminit'))
  copyFileSync(native.addon, join(target, 'addon.node'))
  copyFileSync(descriptors, join(target, 'descriptors.binpb'))
  // The link stays right after the rename, because the temporary and the final folder have the same depth.
  symlinkSync(relative(target, pinnedNode()), join(target, 'node'))
  await writeCodeCache(target)
}

/** Bundled apart and loaded at first use: within the agent's bundle they would more than double a start's parse time. */
const APART = {
  grpc: 'src/rpc/grpc/server.ts',
  tracing: 'src/agent/tracing/start-tracing.ts',
  yaml: 'src/handlers/device/cdi/parse-yaml.ts',
}

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

/** The cache is of an agent that has served a pod's first calls, so it has the functions of a start and of these calls. */
export async function writeCodeCache(target: string): Promise<void> {
  const cache = join(target, 'agent-bundle.cache')
  const words = ['--random-seed=1', codeCacheScript, join(target, 'agent-bundle.cjs'), cache]
  try {
    await withTemporaryFolder(tmpdir(), (folder) => rehearse(target, words, folder))
  } catch (error) {
    console.error(`build: no agent can run here, so agents will start 7 ms slower: ${messageOf(error)}`)
    rmSync(cache, { force: true })
  }
  execFileSync(pinnedNode(), words, { env: {} })
}

/** Runs an agent with an own /run and no cgroups, and makes a pod's first calls. Throws when one is not answered. */
async function rehearse(target: string, args: readonly string[], folder: string): Promise<void> {
  const socket = join(folder, 'agent.sock')
  const config = join(folder, 'agent.toml')
  // A runtime that fails leaves no container here. The agent does most of its work before it.
  writeFileSync(config, 'runtime = "/bin/false"\n')
  const script = ['/run', '/sys/fs/cgroup'].map((path) => `mount -t tmpfs tmpfs ${path} && `).join('')
  const agent = [pinnedNode(), ...args, '--server-addr', `unix://${socket}`, '--config', config]
  const command = [`${script}exec env -i "$@"`, 'sh', join(target, 'vminit'), '--', ...agent]
  const running = spawn('unshare', ['--mount', 'sh', '-c', ...command], {
    stdio: ['ignore', 'pipe', 'pipe'],
    timeout: 30_000,
  })
  let errors = ''
  running.stderr.on('data', (chunk: Buffer) => {
    errors += chunk.toString()
  })
  const callOnceBooted = async () => {
    for await (const line of createInterface(running.stdout)) {
      if (line.includes('"booted"')) await beginPod(socket, folder).finally(() => running.kill())
    }
  }
  const [[status, signal]] = await Promise.all([once(running, 'close'), callOnceBooted()])
  if (status !== 0) throw new Error(`it ended with ${status ?? signal}: ${errors.trim()}`)
}

async function beginPod(path: string, root: string): Promise<void> {
  await checkAgent(path)
  const socket = connect(path)
  await once(socket, 'connect')
  const client = ttrpcClient(socket)
  const agent = clientFor(AgentServiceDefinition, client)
  const Process = { Args: ['/bin/true'], Env: ['PATH=/bin'], Cwd: '/', User: {}, Capabilities: {} }
  const Mounts = [{ destination: '/proc', type: 'proc', source: 'proc', options: ['nosuid'] }]
  const Namespaces = ['mount', 'ipc', 'uts', 'pid'].map((Type) => ({ Type }))
  const Resources = { Memory: { Limit: 2n ** 30n }, Devices: [{ Allow: false, Access: 'rwm' }] }
  const OCI = { Version: '1.0.2', Root: { Path: root }, Process, Mounts, Linux: { Namespaces, Resources } }
  await agent.createSandbox({ sandboxId: 'rehearsal', hostname: 'rehearsal' })
  await agent.createContainer({ containerId: 'rehearsal', OCI }).catch(() => {})
  client.close()
}

/** One Check at the socket of an agent. */
export async function checkAgent(path: string): Promise<void> {
  const socket = connect(path)
  await once(socket, 'connect')
  const client = ttrpcClient(socket)
  await client.call('grpc.Health', 'Check', new Uint8Array(0))
  client.close()
}

export async function bundleAgent(target: string, program = entryPoint): Promise<void> {
  if (!existsSync(program)) throw new Error(`${program}: not found`)
  await build(bundleOptions(target, program))
  wrapBundle(join(target, 'agent-bundle.cjs'))
}

/** Makes a bundle one CommonJS function. A start that did this would keep the text in memory twice, 1 MiB each. */
export function wrapBundle(bundle: string): void {
  writeFileSync(bundle, Module.wrap(readFileSync(bundle, 'latin1')), 'latin1')
}

/** The npm packages whose code is in the bundles, as folders of package-lock.json (`node_modules/yaml`), sorted. */
export async function bundledPackages(): Promise<readonly string[]> {
  const options = { ...bundleOptions(buildRoot), write: false, metafile: true } as const
  const { metafile } = await build(options)
  const sources = Object.values(metafile.outputs).flatMap(({ inputs }) =>
    Object.entries(inputs).flatMap(([path, { bytesInOutput }]) => (bytesInOutput > 0 ? [path] : [])),
  )
  const folders = sources.flatMap((path) => /^(?:.*\/)?node_modules\/(?:@[^/]+\/)?[^/]+/.exec(path) ?? [])
  return [...new Set(folders)].sort()
}

function bundleOptions(target: string, program = entryPoint): BuildOptions {
  return {
    ...BUNDLE_OPTIONS,
    entryPoints: { 'agent-bundle': program, ...APART },
    outdir: target,
    outExtension: { '.js': '.cjs' },
    plugins: [apart],
    format: 'cjs',
    target: 'node24',
    // CommonJS has no import.meta; these variables are equivalent.
    define: { 'import.meta.dirname': '__dirname', 'import.meta.filename': '__filename' },
  }
}

/** Points `link` to `folder` by one rename, so that the link always exists. */
function pointTo(link: string, folder: string): void {
  mkdirSync(dirname(link), { recursive: true })
  const fresh = `${link}.tmp-${process.pid}`
  rmSync(fresh, { force: true })
  symlinkSync(relative(dirname(link), folder), fresh)
  renameSync(fresh, link)
}
