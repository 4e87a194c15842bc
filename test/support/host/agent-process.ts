import { spawn } from 'node:child_process'
import { once } from 'node:events'
import {
  copyFileSync,
  existsSync,
  linkSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  realpathSync,
  writeFileSync,
} from 'node:fs'
import { connect, type Socket } from 'node:net'
import { tmpdir } from 'node:os'
import { basename, join } from 'node:path'
import { errnoOf } from '../../../src/base/errors.ts'
import { buildAgent } from '../../../src/build/agent.ts'
import { temporaryRoot } from '../../../src/build/project.ts'
import { makeTemporaryFolder, removeTemporaryFolder } from '../../../src/build/temporary-folder.ts'
import { AgentServiceDefinition } from '../../../src/gen/agent.ts'
import { HealthDefinition } from '../../../src/gen/health.ts'
import { IntrospectionDefinition } from '../../../src/gen/microvm/agent/v1/introspection.ts'
import { LifecycleDefinition } from '../../../src/gen/microvm/agent/v1/lifecycle.ts'
import { clientFor, type ServiceClient } from '../../../src/rpc/client.ts'
import { ttrpcClient } from '../../../src/rpc/ttrpc/client.ts'
import { type AgentLog, readLog } from '../log-lines.ts'
import { policyAddonFolder } from '../os/policy-addon.ts'
import { endChild, processes } from '../processes.ts'
import { removeCgroups } from '../remove-cgroups.ts'
import { hostRuntime, isOfImage } from './host-runtimes.ts'
import type { NetworkNamespace } from './network-namespace.ts'

export interface AgentConnection {
  readonly agent: ServiceClient<typeof AgentServiceDefinition>
  readonly health: ServiceClient<typeof HealthDefinition>
  readonly introspection: ServiceClient<typeof IntrospectionDefinition>
  readonly lifecycle: ServiceClient<typeof LifecycleDefinition>
  readonly socket: Socket
  close(): void
  readonly closed: Promise<void>
}

/** The real agent below the real vminit, on this machine with a separate /run. */
export interface AgentProcess extends AgentConnection {
  readonly path: string
  /** Of TCP. */
  readonly port: number
  readonly vminitPid: number
  readonly containersCgroup: string
  readonly log: AgentLog['lines']
  agentPid(): number
  /** The kinds of the agent's open descriptors, sorted. */
  openFiles(): readonly string[]
  /** The path on this side of a path in the agent's mount namespace. */
  inside(path: string): string
  connect(): Promise<AgentConnection>
  readonly logged: AgentLog['logged']
  errors(): string
  /** Resolves with the exit status or the name of the signal. */
  readonly exited: Promise<number | string>
  stop(): Promise<void>
}

/** The flags of a guest (native/init/main.c). */
const NODE_FLAGS = ['--max-semi-space-size=1', '--max-old-space-size=192', '--disable-sigusr1']

/** Hides the cgroup v2 hierarchy where it is mounted beside those of v1. */
const HIDE_HYBRID = `if mountpoint -q /sys/fs/cgroup/unified; then
mkdir /run/cgroup && mount -t tmpfs tmpfs /run/cgroup
for each in /sys/fs/cgroup/*; do
  case $each in */unified) continue;; esac
  [ -L $each ] && cp -P $each /run/cgroup && continue
  mkdir /run/cgroup/\${each##*/} && mount --bind $each /run/cgroup/\${each##*/}
done
mount --move /run/cgroup /sys/fs/cgroup && rmdir /run/cgroup
fi`

/** Shows only cgroup v2, which has no controllers while v1 has them. */
const ONLY_V2 = 'umount --recursive /sys/fs/cgroup && mount -t cgroup2 cgroup2 /sys/fs/cgroup'

/** `vminit -- node agent.cjs` in a mount namespace with an empty /run, after the shell commands of `prepare`. */
export function agentCommand(
  installed: string,
  args: readonly string[],
  prepare: readonly string[] = [],
): readonly [string, ...string[]] {
  const script = ['mount -t tmpfs tmpfs /run', ...prepare, 'exec "$@"'].join(' && ')
  const agent = [join(installed, 'node'), ...NODE_FLAGS, join(installed, 'agent.cjs'), ...args]
  const inside = ['sh', '-c', script, 'sh', join(installed, 'vminit'), '--', ...agent]
  return ['unshare', '--mount', '--propagation', 'private', ...inside]
}

export async function startAgent(
  options: {
    readonly args?: readonly string[]
    readonly runtime?: string
    readonly outputReplayBytes?: number
    readonly hangTimeoutSecs?: number
    /** Replaces the machine's network namespace. */
    readonly network?: NetworkNamespace
    /** Settings by their names in a configuration file; values are TOML. */
    readonly settings?: Readonly<Record<string, string>>
    readonly withPolicyEngine?: boolean
    readonly cgroupV2?: boolean
    /** Serves TCP in place of a unix socket. */
    readonly tcp?: boolean
    readonly environment?: Readonly<Record<string, string>>
    /** The folder of another agent, by default the built one. */
    readonly installed?: string
  } = {},
): Promise<AgentProcess> {
  const built = options.installed ?? (await buildAgent())
  const folder = makeTemporaryFolder(tmpdir())
  const installed = options.withPolicyEngine === true ? await withPolicyEngine(built) : built
  const path = join(folder, 'agent.sock')
  const config = join(folder, 'agent.toml')
  const { runtime: wanted = 'runc' } = options
  const runtime = isOfImage(wanted) ? await hostRuntime(wanted) : wanted
  writeFileSync(config, settingsOf({ ...options, runtime }))
  // crun does not work with the cgroup v2 hierarchy next to those of v1.
  const isCrun = basename(runtime) === 'crun'
  const address = options.tcp === true ? 'tcp://127.0.0.1:0' : `unix://${path}`
  const args = ['--server-addr', address, '--config', config, ...(options.args ?? [])]
  const cgroups = options.cgroupV2 === true ? [ONLY_V2] : isCrun ? [HIDE_HYBRID] : []
  const command = agentCommand(installed, args, cgroups)
  const [program = '', ...words] = [...(options.network?.enter ?? []), ...command]
  const child = spawn(program, words, {
    stdio: ['ignore', 'pipe', 'pipe'],
    env: { PATH: '/usr/sbin:/usr/bin:/sbin:/bin', ...options.environment },
  })
  const log = readLog(child)
  let errors = ''
  child.stderr.on('data', (chunk: Buffer) => {
    errors += chunk.toString()
    process.stderr.write(chunk)
  })
  const pid = child.pid
  if (pid === undefined) throw new Error('unshare could not be started')
  const { port } = await log.logged({ msg: 'listening' })
  const target = options.tcp === true ? Number(port) : path
  const connection = await open(target)
  return {
    ...connection,
    path,
    port: Number(port),
    vminitPid: pid,
    containersCgroup: `/containers-${pid}`,
    log: log.lines,
    logged: log.logged,
    errors: () => errors,
    exited: once(child, 'exit').then(([code, signal]) => code ?? signal),
    agentPid: () => agentBelow(pid),
    openFiles: () => openFilesOf(agentBelow(pid)),
    inside: (inner) => `/proc/${pid}/root${inner}`,
    connect: () => open(target),
    stop: async () => {
      connection.close()
      await endChild(child)
      await removeCgroups(cgroupsNamed(`containers-${pid}`))
      removeTemporaryFolder(folder)
      if (installed !== built) removeTemporaryFolder(installed)
    },
  }
}

/** The cgroups of an ended agent's containers, which in a guest remain until the power-off. */
function cgroupsNamed(name: string): readonly string[] {
  const root = '/sys/fs/cgroup'
  return ['', ...readdirSync(root)]
    .map((hierarchy) => join(root, hierarchy, name))
    .filter((folder) => existsSync(folder))
}

function settingsOf(options: Parameters<typeof startAgent>[0] & object): string {
  const { runtime, hangTimeoutSecs, outputReplayBytes, settings } = options
  const all = {
    runtime: runtime && JSON.stringify(runtime),
    hang_timeout: hangTimeoutSecs,
    output_replay_bytes: outputReplayBytes,
    ...settings,
  }
  const given = Object.entries(all).filter(([, value]) => value !== undefined)
  return given.map(([name, value]) => `${name} = ${value}\n`).join('')
}

async function withPolicyEngine(built: string): Promise<string> {
  const folder = makeTemporaryFolder(temporaryRoot)
  for (const name of readdirSync(built)) linkSync(realpathSync(join(built, name)), join(folder, name))
  copyFileSync(join(await policyAddonFolder(), 'policy.node'), join(folder, 'policy.node'))
  return folder
}

async function open(target: string | number): Promise<AgentConnection> {
  const socket = typeof target === 'number' ? connect(target, '127.0.0.1') : connect(target)
  await new Promise<void>((resolve, reject) => socket.once('connect', resolve).once('error', reject))
  const client = ttrpcClient(socket)
  return {
    agent: clientFor(AgentServiceDefinition, client),
    health: clientFor(HealthDefinition, client),
    introspection: clientFor(IntrospectionDefinition, client),
    lifecycle: clientFor(LifecycleDefinition, client),
    socket,
    close: () => client.close(),
    closed: client.closed,
  }
}

/** Finds the agent by its command line; vminit's other children are the broker and adopted orphans. */
export function agentBelow(pid: number): number {
  const children = processes()
    .filter(({ parent }) => parent === pid)
    .map((child) => child.pid)
    .filter((child) => commandLineOf(child).includes('agent.cjs'))
  const [child] = children
  if (child === undefined) throw new Error(`vminit ${pid} has no agent`)
  return child
}

function commandLineOf(pid: number): string {
  try {
    return readFileSync(`/proc/${pid}/cmdline`, 'utf8')
  } catch (error) {
    if (errnoOf(error) === 'ENOENT' || errnoOf(error) === 'ESRCH') return ''
    throw error
  }
}

function openFilesOf(pid: number): string[] {
  const folder = `/proc/${pid}/fd`
  return readdirSync(folder)
    .map((fd) => readlinkSync(join(folder, fd)).replace(/\[\d+\]$/, ''))
    .sort()
}
