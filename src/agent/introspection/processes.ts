import {
  type GetStacksResponse,
  type ListProcessesRequest,
  type ListProcessesResponse,
  type Process,
  Process_Role as Role,
  type Thread,
} from '../../gen/microvm/agent/v1/introspection.ts'
import type { Container } from '../../handlers/container/container.ts'
import type { ContainerProcess } from '../../handlers/process/process.ts'
import type { Os } from '../../os/os.ts'
import { parseStartNs, procStatFields } from '../../os/process/proc-stat.ts'
import type { IntrospectionContext } from './context.ts'
import { containersOf } from './sandbox.ts'

/** The most processes or threads of one answer, because a container may have any number of them. */
const MOST = 1024

const AT_ONCE = 16

/** The fields that are known before /proc is read. */
type Known = Pick<
  Process,
  'role' | 'containerId' | 'execId' | 'pid' | 'hasTerminal' | 'exitStatus' | 'paused' | 'unreadMs'
>

/** Throws NOT_FOUND for an unknown container. */
export async function listProcesses(
  { sandbox }: Pick<IntrospectionContext, 'sandbox'>,
  { containerId }: ListProcessesRequest,
): Promise<ListProcessesResponse> {
  const { os, events } = sandbox
  const ofContainers = await inOrder(containersOf(sandbox, containerId), processesIn)
  const own = containerId === '' ? (await ownPids(os)).map((pid) => known(Role.AGENT, pid)) : []
  const all = [...ofContainers.flat(), ...own]
  const processes = await inBatches(all.slice(0, MOST), (process) =>
    look(os, process, events.unixMsOf.bind(events)),
  )
  return { processes, omitted: Math.max(0, all.length - MOST) }
}

/** The tracked processes of a container, then the untracked ones in its cgroup. */
async function processesIn({ id, state }: Container): Promise<readonly Known[]> {
  if (!('parts' in state)) return []
  const { processes, cgroup } = state.parts
  const tracked = processes.trackedByExecId().map(([execId, process]) => trackedAs(id, execId, process))
  const pids = new Set(tracked.map(({ pid }) => pid))
  // The cgroup of a container that is being removed may be gone.
  const members = await cgroup.members().catch(() => [])
  const others = members.filter((pid) => !pids.has(pid))
  const all = [...tracked, ...others.map((pid) => ({ ...known(Role.OTHER, pid), containerId: id }))]
  return all.map((process) => ({ ...process, paused: state.name === 'paused' }))
}

function trackedAs(containerId: string, execId: string, { pid, stdio, status }: ContainerProcess): Known {
  const role = execId === '' ? Role.INIT : Role.EXEC
  const unreadMs = BigInt(Math.round(Math.max(stdio.stdout.unreadMs(), stdio.stderr.unreadMs())))
  const hasTerminal = stdio.stdout === stdio.stderr
  return { ...known(role, pid), containerId, execId, hasTerminal, exitStatus: status, unreadMs }
}

function known(role: Role, pid: number): Known {
  const none = { hasTerminal: false, exitStatus: undefined, paused: false, unreadMs: 0n }
  return { role, containerId: '', execId: '', pid, ...none }
}

/** The same on every supported architecture. */
const PAGE_BYTES = 4096n

async function look(
  { scratch }: Pick<Os, 'scratch'>,
  process: Known,
  unixMsOf: (boottimeNs: bigint) => bigint,
): Promise<Process> {
  const of = (file: string) => scratch.readText(`/proc/${process.pid}/${file}`).catch(() => '')
  // The pid of a reaped process may belong to another process by now.
  const stat = process.exitStatus === undefined ? await of('stat') : ''
  if (stat === '') return { ...process, ...GONE }
  const [state = '', parent, ...rest] = procStatFields(stat)
  const waitsIn = (await of('wchan')).trim()
  return {
    ...process,
    parentPid: Number(parent),
    name: nameIn(stat),
    state,
    waitsIn: waitsIn === '0' ? '' : waitsIn,
    startedAtMs: unixMsOf(parseStartNs(stat)),
    // `num_threads` and `rss`, fields 20 and 24 of /proc/PID/stat (proc(5)).
    threads: Number(rest[15]),
    residentBytes: BigInt(rest[19] ?? 0) * PAGE_BYTES,
  }
}

const GONE = {
  parentPid: 0,
  name: '',
  state: '',
  waitsIn: '',
  startedAtMs: 0n,
  threads: 0,
  residentBytes: 0n,
} as const

function nameIn(stat: string): string {
  return stat.slice(stat.indexOf('(') + 1, stat.lastIndexOf(')'))
}

/** The agent's parent, the agent, and its children. */
async function ownPids({ files, system }: Pick<Os, 'files' | 'system'>): Promise<readonly number[]> {
  const parent = procStatFields(await files.readText('/proc/self/stat').catch(() => ''))[1]
  const threads = await files.list('/proc/self/task')
  const children = await inBatches(threads, (thread) =>
    files.readText(`/proc/self/task/${thread}/children`).catch(() => ''),
  )
  const pids = children.join(' ').split(/\s+/).filter(Boolean).map(Number)
  return [...(parent === undefined ? [] : [Number(parent)]), system.pid, ...pids]
}

/** The kernel stacks of the agent and its programs, and the resources that keep its event loop alive. */
export async function getStacks({
  sandbox: { os },
}: Pick<IntrospectionContext, 'sandbox'>): Promise<Omit<GetStacksResponse, 'calls'>> {
  const pids = await ownPids(os)
  const threads = await inOrder(pids, async (pid) => {
    const ids = await os.files.list(`/proc/${pid}/task`)
    return ids.map((id) => ({ pid, threadId: Number(id) }))
  })
  const counts = new Map<string, number>()
  for (const type of process.getActiveResourcesInfo()) counts.set(type, (counts.get(type) ?? 0) + 1)
  return {
    threads: await inBatches(threads.flat().slice(0, MOST), (thread) => lookAtThread(os, thread)),
    loopResources: [...counts].map(([type, count]) => ({ type, count })),
  }
}

async function lookAtThread(
  { scratch }: Pick<Os, 'scratch'>,
  thread: Pick<Thread, 'pid' | 'threadId'>,
): Promise<Thread> {
  const { pid, threadId } = thread
  const of = (file: string) => scratch.readText(`/proc/${pid}/task/${threadId}/${file}`).catch(() => '')
  const [stat, stack] = [await of('stat'), await of('stack')]
  const kernelStack = stack.split('\n').flatMap((line) => /^\[<0>\] (\S+?)\+/.exec(line)?.[1] ?? [])
  return { ...thread, name: nameIn(stat), state: procStatFields(stat)[0] ?? '', kernelStack }
}

async function inOrder<T, R>(items: readonly T[], task: (item: T) => Promise<R>): Promise<R[]> {
  const results: R[] = []
  for (const item of items) results.push(await task(item))
  return results
}

async function inBatches<T, R>(items: readonly T[], task: (item: T) => Promise<R>): Promise<R[]> {
  const results: R[] = []
  for (let first = 0; first < items.length; first += AT_ONCE) {
    results.push(...(await Promise.all(items.slice(first, first + AT_ONCE).map(task))))
    // Lets other calls run between batches.
    await new Promise((resolve) => setImmediate(resolve))
  }
  return results
}
