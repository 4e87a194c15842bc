import { execFile } from 'node:child_process'
import { readdirSync, readFileSync } from 'node:fs'
import { readdir, readFile } from 'node:fs/promises'
import { promisify } from 'node:util'
import { AgentError, errnoOf, messageOf } from '../../../base/errors.ts'
import { chooseCpus, commonCpus, type HostCpus } from '../../catalogue/choose-cpus.ts'
import { openCatalogue } from '../../catalogue/open-catalogue.ts'
import type { Machine as MachineDescription } from '../../machine/machine.ts'
import type { HeldChild } from '../holder/holder.ts'
import { type Machine, QEMU } from './machine.ts'

/** Who has which CPUs of this host. */
export interface CpuShares {
  /** What chooses those that a machine has for itself, none of which is taken. */
  chooser(
    machine: MachineDescription,
    tenant: string | undefined,
  ): Promise<(taken: ReadonlySet<number>) => readonly number[]>
  /** Those that are in no pool; undefined when it does not matter. */
  common(): Promise<readonly number[] | undefined>
  /** Has a process, and all that it starts from then on, run on these alone. */
  keepOn(pid: number, cpus: readonly number[]): Promise<void>
  /** Gives the threads of QEMU's CPUs, by their ids in its PID namespace, a CPU each. */
  pin(pid: number, threads: readonly number[], cpus: readonly number[]): Promise<void>
}

export function cpuShares(catalogue?: string): CpuShares {
  return {
    chooser: async (machine, tenant) => {
      if (machine.cpu.exclusive === undefined) return () => []
      const pools = await openCatalogue(catalogue)
      const host = hostCpus()
      commonCpus(pools, host)
      return (taken) => chooseCpus({ machine, tenant, catalogue: pools, host, taken })
    },
    common: async () => {
      const pools = await openCatalogue(catalogue)
      // Most hosts have none.
      return Object.keys(pools.cpu_pools).length === 0 ? undefined : commonCpus(pools, hostCpus())
    },
    keepOn: setAffinity,
    pin: async (pid, threads, cpus) => {
      if (new Set(threads).size !== cpus.length)
        throw new AgentError(
          'FAILED_PRECONDITION',
          `cpu.exclusive: QEMU has ${new Set(threads).size} threads for ${cpus.length} CPUs`,
        )
      const own = await threadsOf(pid)
      for (const [index, cpu] of cpus.entries()) {
        const thread = own.get(threads[index] ?? 0)
        if (thread === undefined) throw new AgentError('UNAVAILABLE', `QEMU's CPU ${index} has no thread`)
        await setAffinity(thread, [cpu])
      }
    },
  }
}

interface PinnedContext {
  readonly cpus?: CpuShares | undefined
  readonly machine: Machine | undefined
  readonly ending: () => AbortSignal
}

/** Gives each of QEMU's CPUs its own of `list`. `children` are those of the holder. */
export async function pinCpus(
  { cpus, ending, machine }: PinnedContext,
  children: readonly HeldChild[],
  list: readonly number[],
): Promise<void> {
  if (machine === undefined || cpus === undefined)
    throw new AgentError('UNIMPLEMENTED', 'cpu.exclusive: no CPUs can be had here')
  const pid = children.find(({ name, exit }) => name === QEMU.child && exit === undefined)?.pid
  if (pid === undefined) throw new AgentError('UNAVAILABLE', 'QEMU has ended')
  const found = await machine.qmp.execute('query-cpus-fast', {}, ending())
  const threads = found.toSorted((a, b) => a['cpu-index'] - b['cpu-index']).map((each) => each['thread-id'])
  await cpus.pin(pid, threads, list)
}

const SYS = '/sys/devices/system'

export function hostCpus(root = SYS): HostCpus {
  const online = new Set(numbersOf(readFileSync(`${root}/cpu/online`, 'utf8')))
  return { online, nodes: hostNodes(root) }
}

/** A kernel without NUMA has none. */
export function hostNodes(root = SYS): HostCpus['nodes'] {
  try {
    const names = readdirSync(`${root}/node`).filter((name) => /^node\d+$/.test(name))
    const numbers = names.map((name) => Number(name.slice('node'.length))).sort((a, b) => a - b)
    return new Map(
      numbers.map((number) => [
        number,
        numbersOf(readFileSync(`${root}/node/node${number}/cpulist`, 'utf8')),
      ]),
    )
  } catch (error) {
    if (errnoOf(error) === 'ENOENT') return new Map()
    throw error
  }
}

/** `0-3,8` of the kernel; an empty line is none. */
function numbersOf(list: string): readonly number[] {
  const parts = list
    .trim()
    .split(',')
    .filter((part) => part !== '')
  return parts.flatMap((part) => {
    const [first = 0, last = first] = part.split('-').map(Number)
    return Array.from({ length: last - first + 1 }, (_, index) => first + index)
  })
}

/** The ids of a process's threads here, by those in its own PID namespace. */
async function threadsOf(pid: number): Promise<ReadonlyMap<number, number>> {
  const names = await readdir(`/proc/${pid}/task`)
  const pairs = await Promise.all(
    names.map(async (name) => {
      // One that has just ended is none of a CPU.
      const status = await readFile(`/proc/${pid}/task/${name}/status`, 'utf8').catch(() => '')
      const inner = /^NSpid:.*\s(\d+)$/m.exec(status)?.[1]
      return inner === undefined ? [] : [[Number(inner), Number(name)] as const]
    }),
  )
  return new Map(pairs.flat())
}

const TASKSET_MS = 10_000

/** Of util-linux, which each Debian has. */
async function setAffinity(thread: number, cpus: readonly number[]): Promise<void> {
  const words = ['--pid', '--cpu-list', cpus.join(','), String(thread)]
  await promisify(execFile)('taskset', words, { timeout: TASKSET_MS }).catch((error) => {
    const [, reason = messageOf(error)] = messageOf(error).split('\n')
    throw new AgentError('FAILED_PRECONDITION', `CPUs ${cpus.join(',')}: ${reason}`, { cause: error })
  })
}
