import { execFileSync } from 'node:child_process'
import { existsSync, readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { expect } from 'vitest'
import { makeTemporaryFolder, removeTemporaryFolder } from '../../../src/build/temporary-folder.ts'
import type { CreateSandboxRequest } from '../../../src/gen/agent.ts'
import type { DeepPartial } from '../../../src/gen/oci.ts'
import { busyboxRoot } from '../containers/busybox-root.ts'
import { type Pod, podOf } from '../containers/pod.ts'
import { processes } from '../processes.ts'
import { type AgentProcess, startAgent } from './agent-process.ts'

export interface AgentPod extends Pod {
  readonly started: AgentProcess
  stop(): Promise<void>
}

/** Starts an agent and creates its sandbox `pod`; `sandbox` adds fields to the request. The caller stops it. */
export async function startPod(
  options: Parameters<typeof startAgent>[0] = {},
  sandbox: DeepPartial<CreateSandboxRequest> = {},
): Promise<AgentPod> {
  const folder = makeTemporaryFolder(tmpdir())
  const started = await startAgent(options)
  await started.agent.createSandbox({ sandboxId: 'pod', hostname: 'podname', ...sandbox })
  return {
    ...podOf(started.agent, busyboxRoot(folder)),
    started,
    stop: async () => {
      await started.stop()
      removeTemporaryFolder(folder)
    },
  }
}

export interface Leftovers {
  readonly mounts: readonly string[]
  readonly cgroups: readonly string[]
  readonly bundles: readonly string[]
  /** State files of the runtime, and scratch folders of its runs. */
  readonly runtimeState: readonly string[]
  /** Children of vminit and of the agent, including zombies, without the agent itself. */
  readonly processes: readonly string[]
}

export const NOTHING_LEFT: Leftovers = {
  mounts: [],
  cgroups: [],
  bundles: [],
  runtimeState: [],
  processes: [],
}

export function leftoversOf(started: AgentProcess, ...ids: readonly string[]): Leftovers {
  const within = (path: string) =>
    listOf(started.inside(path))
      .filter((name) => ids.includes(name))
      .map((name) => `${path}/${name}`)
  return {
    mounts: mountPointsOf(started).filter((path) => ids.some((id) => path.split('/').includes(id))),
    cgroups: ids.flatMap((id) => cgroupsOf(id, started)),
    bundles: within('/run/kata-containers'),
    runtimeState: [
      ...within('/run/microvm-agent/state'),
      ...listOf(started.inside('/run/microvm-agent/calls')),
    ],
    processes: childrenOf(started.vminitPid, started.agentPid()),
  }
}

/** The existing cgroups at a path such as a container's id, without those of other, perhaps interrupted, tests. */
export function cgroupsOf(path: string, of: Pick<AgentProcess, 'containersCgroup'>): string[] {
  const hierarchies = ['', ...listOf('/sys/fs/cgroup')].map((name) => join('/sys/fs/cgroup', name))
  const isMeant = (parent: string) => parent.endsWith(of.containersCgroup)
  const parents = hierarchies.flatMap((hierarchy) => [
    hierarchy,
    ...containersCgroupsIn(hierarchy).filter(isMeant),
  ])
  return parents.map((parent) => join(parent, path)).filter((folder) => existsSync(folder))
}

function containersCgroupsIn(hierarchy: string): string[] {
  return readdirSync(hierarchy, { withFileTypes: true })
    .filter((entry) => entry.isDirectory() && /^containers-\d+$/.test(entry.name))
    .map(({ name }) => join(hierarchy, name))
}

export function cgroupFile(started: AgentProcess, controller: string, id: string, name: string): string {
  const file = `/sys/fs/cgroup/${controller}${started.containersCgroup}/${id}/${controller}.${name}`
  return readFileSync(file, 'utf8')
}

export function mountPointsOf(started: AgentProcess): string[] {
  const lines = readFileSync(`/proc/${started.vminitPid}/mountinfo`, 'utf8').trim().split('\n')
  return lines.map((line) => line.split(' ')[4] ?? '')
}

export function inNamespaceOf(started: AgentProcess, ...argv: readonly string[]): string {
  return execFileSync('nsenter', ['-t', String(started.vminitPid), '-m', ...argv], { encoding: 'utf8' })
}

export async function killAgent({ started }: AgentPod): Promise<void> {
  const booted = () => started.log.filter(({ msg }) => msg === 'booted').length
  const before = booted()
  process.kill(started.agentPid(), 'SIGKILL')
  await expect.poll(booted, { timeout: 20_000 }).toBeGreaterThan(before)
}

/** Kills the agent with damaged state: the next agent ends, and the agent after it removes everything. */
export function killWithState(started: AgentProcess): void {
  writeFileSync(started.inside('/run/microvm-agent/saved/sandbox'), 'damaged')
  process.kill(started.agentPid(), 'SIGKILL')
}

export function initPidOf(started: AgentProcess, id: string): number {
  const state: { init_process_pid: number } = JSON.parse(
    readFileSync(started.inside(`/run/microvm-agent/state/${id}/state.json`), 'utf8'),
  )
  return state.init_process_pid
}

function childrenOf(vminit: number, agent: number): string[] {
  return (
    processes()
      .filter(({ pid, parent }) => pid !== agent && [vminit, agent].includes(parent))
      // The broker lasts as long as vminit.
      .filter(({ name }) => name !== 'api-broker')
      // A live process may sleep at one check and run at the next, so the state is reduced to dead or alive.
      .map(({ pid, name, state }) => `${pid} (${name}) ${state === 'Z' ? 'dead' : 'alive'}`)
  )
}

function listOf(folder: string): string[] {
  return existsSync(folder) ? readdirSync(folder) : []
}
