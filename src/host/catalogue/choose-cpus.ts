import { AgentError } from '../../base/errors.ts'
import { didYouMean } from '../../base/suggest.mjs'
import type { Machine } from '../machine/machine.ts'
import { shown } from '../spec/component-path.ts'
import type { Catalogue } from './catalogue.ts'

/** What is known of the CPUs of this host. */
export interface HostCpus {
  readonly online: ReadonlySet<number>
  /** The CPUs of each NUMA node by its number; empty for a host without nodes. */
  readonly nodes: ReadonlyMap<number, readonly number[]>
}

interface CpuRequest {
  readonly machine: Machine
  /** Undefined or empty: the administrator. */
  readonly tenant: string | undefined
  readonly catalogue: Catalogue
  readonly host: HostCpus
  /** Those that other instances have. */
  readonly taken: ReadonlySet<number>
}

/**
 * The CPUs of this host that a machine has for itself, one for each of the guest's, in their order; none unless it wishes for
 * them. They are of one pool, and of one node where a node has enough. Throws FAILED_PRECONDITION for a pool that the tenant
 * may not use, and RESOURCE_EXHAUSTED when too few are free.
 */
export function chooseCpus(request: CpuRequest): readonly number[] {
  const { machine } = request
  if (machine.cpu.exclusive === undefined) return []
  const pools = poolsFor(request)
  for (const [, free] of pools) {
    const cpus = takeFrom(request, free)
    if (cpus !== undefined) return cpus
  }
  const text = pools.map(([name, free]) => `${name} has ${free.length} free`).join(', ')
  throw new AgentError('RESOURCE_EXHAUSTED', `${AT}: wants ${machine.cpu.count} CPUs, but CPU pool ${text}`)
}

const AT = 'cpu.exclusive'

/** CPUs for all that is not pinned: those of no pool, or undefined without pools. Throws FAILED_PRECONDITION for none. */
export function commonCpus(
  { cpu_pools: pools }: Catalogue,
  { online }: HostCpus,
): readonly number[] | undefined {
  const pooled = new Set(Object.values(pools).flatMap(({ cpus }) => cpus))
  if (pooled.size === 0) return undefined
  const common = [...online].filter((cpu) => !pooled.has(cpu))
  if (common.length > 0) return common
  throw new AgentError(
    'FAILED_PRECONDITION',
    'cpu_pools: all CPUs of this host are in pools, want one for the rest',
  )
}

/**
 * The node of this host that memory is to be on, for each cell of the machine, or for the whole. It is that of the exclusive
 * CPUs. Without them it is that of the cell's number, where the machine matches the host.
 */
export function memoryNodes(
  { cpu, numa }: Machine,
  cpus: readonly number[],
  { nodes }: Pick<HostCpus, 'nodes'>,
): readonly (number | undefined)[] {
  const { cells, matchHost } = numa
  const ofCells =
    cells.length > 0
      ? cells.map((cell) => cell.cpus)
      : [Array.from({ length: cpu.count }, (_, number) => number)]
  const byNumber = matchHost && cells.length === nodes.size ? [...nodes.keys()] : []
  return ofCells.map((own, index) => {
    if (cpus.length === 0) return byNumber[index]
    const pinned = own.map((number) => cpus[number] ?? -1)
    return [...nodes].find(([, all]) => pinned.every((each) => all.includes(each)))?.[0]
  })
}

/** Names of pools that the machine may have CPUs of, each with those that are free. */
function poolsFor({
  catalogue,
  host,
  machine,
  taken,
  tenant,
}: CpuRequest): readonly (readonly [string, readonly number[]])[] {
  const own = Object.entries(catalogue.cpu_pools).filter(
    ([, { tenants = [] }]) => !tenant || tenants.includes(tenant),
  )
  const { pool: wanted } = machine.cpu.exclusive ?? {}
  const found = wanted === undefined ? own : own.filter(([name]) => name === wanted)
  if (found.length === 0) {
    const names = own.map(([name]) => name)
    const whose = tenant ? ` for tenant ${tenant}` : ''
    const all = names.length === 0 ? 'which has none' : `want ${names.join(', ')}`
    const what = wanted === undefined ? 'a CPU pool' : `CPU pool ${shown(wanted)}`
    const hint = wanted === undefined ? '' : didYouMean(wanted, names, all)
    throw new AgentError('FAILED_PRECONDITION', `${AT}: ${what}: not in the catalogue${whose}${hint}`)
  }
  const isFree = (cpu: number) => host.online.has(cpu) && !taken.has(cpu)
  return found.map(([name, { cpus }]) => [name, cpus.filter(isFree).sort((a, b) => a - b)] as const)
}

/** Cells take a node each where the machine is to match the host; else all CPUs are of one node if it has enough. */
function takeFrom({ host, machine }: CpuRequest, free: readonly number[]): readonly number[] | undefined {
  const { count } = machine.cpu
  if (free.length < count) return undefined
  const nodes = [...host.nodes.values()].map((own) => free.filter((cpu) => own.includes(cpu)))
  const { cells, matchHost } = machine.numa
  if (
    matchHost &&
    cells.length > 1 &&
    cells.every(({ cpus }, index) => cpus.length <= (nodes[index]?.length ?? 0))
  ) {
    const chosen = new Array<number>(count).fill(0)
    for (const [index, { cpus }] of cells.entries())
      for (const [at, number] of cpus.entries()) chosen[number] = nodes[index]?.[at] ?? 0
    return chosen
  }
  // The smallest that suffices leaves the most for others.
  const [best = free] = nodes.filter((own) => own.length >= count).sort((a, b) => a.length - b.length)
  return best.slice(0, count)
}
