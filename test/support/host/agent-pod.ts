import { execFileSync } from 'node:child_process'
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmdirSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { CreateSandboxRequest } from '../../../src/gen/agent.ts'
import type { DeepPartial } from '../../../src/gen/oci.ts'
import { procStatFields } from '../../../src/os/process/proc-stat.ts'
import { type AgentProcess, startAgent } from './agent-process.ts'
import { busyboxRoot } from './busybox-root.ts'
import { container, exec, RemoteProcess } from './container-requests.ts'

type Options = Parameters<typeof container>[3]

/** An agent with a sandbox, and a root file system for its containers. */
export interface Pod {
  readonly started: AgentProcess
  readonly agent: AgentProcess['agent']
  readonly root: string
  /** Creates a container whose process waits to be started. */
  create(id: string, args: readonly string[], options?: Options): Promise<RemoteProcess>
  /** Creates and starts a container. */
  run(id: string, args: readonly string[], options?: Options): Promise<RemoteProcess>
  /** Adds a process to a container. */
  add(id: string, execId: string, args: readonly string[], options?: Options): Promise<RemoteProcess>
  remove(id: string): Promise<void>
  stop(): Promise<void>
}

/** Starts an agent and creates its sandbox `pod`, with more if need be. Whoever called stops it. */
export async function startPod(
  options: Parameters<typeof startAgent>[0] = {},
  sandbox: DeepPartial<CreateSandboxRequest> = {},
): Promise<Pod> {
  const folder = mkdtempSync(join(tmpdir(), 'pod-'))
  const root = busyboxRoot(folder)
  const started = await startAgent(options)
  const { agent } = started
  await agent.createSandbox({ sandboxId: 'pod', hostname: 'podname', ...sandbox })
  const create: Pod['create'] = async (id, args, options) => {
    await agent.createContainer(container(id, root, args, options))
    return new RemoteProcess(agent, id)
  }
  return {
    started,
    agent,
    root,
    create,
    run: async (id, args, options) => {
      const init = await create(id, args, options)
      await agent.startContainer({ containerId: id })
      return init
    },
    add: async (id, execId, args, options) => {
      await agent.execProcess(exec(id, execId, args, options))
      return new RemoteProcess(agent, id, execId)
    },
    remove: async (id) => {
      await agent.removeContainer({ containerId: id })
    },
    stop: async () => {
      await started.stop()
      rmSync(folder, { recursive: true, force: true })
    },
  }
}

/** What is left on the machine of containers, by kind; all lists are empty when they were taken away whole. */
export interface Leftovers {
  readonly mounts: readonly string[]
  readonly cgroups: readonly string[]
  readonly bundles: readonly string[]
  /** What the runtime keeps about them, and scratch folders of single runs. */
  readonly runtimeState: readonly string[]
  /** Children of vminit and of the agent, dead ones not yet reaped included; not the agent itself. */
  readonly processes: readonly string[]
}

export const NOTHING_LEFT: Leftovers = {
  mounts: [],
  cgroups: [],
  bundles: [],
  runtimeState: [],
  processes: [],
}

/** Looks for what the containers with these ids have left behind. The agent must be running. */
export function leftoversOf(started: AgentProcess, ...ids: readonly string[]): Leftovers {
  const within = (path: string) =>
    listOf(started.inside(path))
      .filter((name) => ids.includes(name))
      .map((name) => `${path}/${name}`)
  return {
    mounts: mountPointsOf(started).filter((path) => ids.some((id) => path.split('/').includes(id))),
    cgroups: ids.flatMap(cgroupsOf),
    bundles: within('/run/kata-containers'),
    runtimeState: [
      ...within('/run/microvm-agent/state'),
      ...listOf(started.inside('/run/microvm-agent/calls')),
    ],
    processes: childrenOf(started.vminitPid, started.agentPid()),
  }
}

/** Cgroups of a container that exist on this machine. */
export function cgroupsOf(id: string): string[] {
  return ['', ...listOf('/sys/fs/cgroup')]
    .map((hierarchy) => join('/sys/fs/cgroup', hierarchy, id))
    .filter((path) => existsSync(path))
}

/** Removes folders of cgroups on this machine, and those above them. Throws when one is not empty. */
export function removeEmptyCgroups(paths: readonly string[]): void {
  for (const path of paths) {
    const parents = path.split('/').map((_, index, names) => names.slice(0, names.length - index).join('/'))
    for (const folder of parents.flatMap(cgroupsOf)) rmdirSync(folder)
  }
}

/** Where something is mounted in the agent's mount namespace. */
export function mountPointsOf(started: AgentProcess): string[] {
  const lines = readFileSync(`/proc/${started.vminitPid}/mountinfo`, 'utf8').trim().split('\n')
  return lines.map((line) => line.split(' ')[4] ?? '')
}

/** Runs a program in the agent's mount namespace. */
export function inNamespaceOf(started: AgentProcess, ...argv: readonly string[]): string {
  return execFileSync('nsenter', ['-t', String(started.vminitPid), '-m', ...argv], { encoding: 'utf8' })
}

/** The first process of a container, as the runtime noted it. */
export function initPidOf(started: AgentProcess, id: string): number {
  const state: { init_process_pid: number } = JSON.parse(
    readFileSync(started.inside(`/run/microvm-agent/state/${id}/state.json`), 'utf8'),
  )
  return state.init_process_pid
}

function childrenOf(vminit: number, agent: number): string[] {
  return listOf('/proc')
    .filter((name) => /^\d+$/.test(name) && Number(name) !== agent)
    .flatMap((name) => {
      const stat = statOf(name)
      if (stat === undefined) return []
      const [state = '', parent = ''] = procStatFields(stat)
      // Whether one that lives sleeps at this moment is not to be compared.
      const life = state === 'Z' ? 'dead' : 'alive'
      return [vminit, agent].includes(Number(parent))
        ? [`${stat.slice(0, stat.lastIndexOf(')') + 1)} ${life}`]
        : []
    })
}

function statOf(pid: string): string | undefined {
  try {
    return readFileSync(`/proc/${pid}/stat`, 'utf8')
  } catch {
    // It ended meanwhile.
    return undefined
  }
}

function listOf(folder: string): string[] {
  return existsSync(folder) ? readdirSync(folder) : []
}
