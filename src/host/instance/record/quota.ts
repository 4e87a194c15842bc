import { AgentError } from '../../../base/errors.ts'
import {
  type Instance,
  type SavedMachine,
  type Specification,
  State,
} from '../../../gen/microvm/instance/v1/instance.ts'
import type { InstanceRecord } from '../../../gen/microvm/instance/v1/records.ts'

/** What the instances of one tenant may take together. */
export interface Quota {
  readonly instances: number
  /** Of the guests that are not stopped: with the room for more, or the limit of an instance where that is larger. Once for all clones of
   * a saved machine besides, for the memory from which they go on. */
  readonly memoryMib: number
  readonly cpus: number
  /** Those in the store that were not resumed, and what their files have. */
  readonly savedMachines: number
  readonly savedMib: number
}

export const DEFAULT_QUOTA: Quota = {
  ...{ instances: 64, memoryMib: 65_536, cpus: 128 },
  ...{ savedMachines: 64, savedMib: 131_072 },
}

/** By the names of the tenants that have one. */
export type Quotas = ReadonlyMap<string, Quota>

/** An instance, as it counts. */
export type QuotaUse = Pick<Instance, 'properties' | 'specification' | 'state'> &
  Partial<Pick<InstanceRecord, 'privateMemory'>>

/** Throws RESOURCE_EXHAUSTED with the numbers when a tenant would have more than its quota with the machine of `next`. */
export function checkQuota(quotas: Quotas, next: QuotaUse, others: readonly QuotaUse[]): void {
  const tenant = tenantOf(next)
  const quota = quotas.get(tenant)
  if (quota === undefined) return
  const check = checkOf(tenant)
  const own = others.filter((other) => tenantOf(other) === tenant)
  const machines = [next, ...own.filter(({ state }) => state !== State.STOPPED)]
  const boards = machines.flatMap(({ specification }) => specification?.board ?? [])
  const memory = machines.map(({ specification }) =>
    Math.max(memoryOf(specification), Number(specification?.limits?.memoryMib ?? 0n)),
  )
  // What clones have in common is held once besides what each may have of its own.
  const shared = machines.flatMap(({ privateMemory, specification }) =>
    privateMemory ? [[privateMemory, Number(specification?.board?.memoryMib ?? 0n)] as const] : [],
  )
  check(own.length + 1, 'instances', quota.instances)
  check(sum([...memory, ...new Map(shared).values()]), 'MiB of memory in machines', quota.memoryMib)
  check(sum(boards.map(({ cpus, room }) => cpus + (room?.cpus ?? 0))), 'CPUs in machines', quota.cpus)
}

/** A saved machine, as it counts. */
export type SavedUse = Pick<SavedMachine, 'resumedAs' | 'sizeBytes' | 'tenant'>

/** The memories of snapshots count as saved machines. */
export function keptMachines(
  instances: Iterable<{ readonly record: Readonly<Pick<InstanceRecord, 'properties' | 'snapshots'>> }>,
): readonly SavedUse[] {
  return [...instances].flatMap(({ record: { properties, snapshots } }) =>
    snapshots.flatMap(({ memory, specification }) =>
      memory ? [savedUse(properties?.tenant, specification)] : [],
    ),
  )
}

/** A machine of a specification, as it counts when it is saved. */
export function savedUse(tenant = '', specification: Specification | undefined): SavedUse {
  return { tenant, resumedAs: '', sizeBytes: BigInt(memoryOf(specification)) * 2n ** 20n }
}

/** The same for the machine of `next` as one more saved machine, which may take as much as its memory. */
export function checkSavedQuota(
  quotas: Quotas,
  next: Pick<QuotaUse, 'properties' | 'specification'>,
  saved: readonly SavedUse[],
): void {
  const tenant = tenantOf(next)
  const quota = quotas.get(tenant)
  if (quota === undefined) return
  const check = checkOf(tenant)
  const own = saved.filter((each) => each.tenant === tenant && each.resumedAs === '')
  const mib = Math.ceil(sum(own.map(({ sizeBytes }) => Number(sizeBytes))) / 2 ** 20)
  check(own.length + 1, 'saved machines', quota.savedMachines)
  check(mib + memoryOf(next.specification), 'MiB of saved machines', quota.savedMib)
}

function checkOf(tenant: string): (amount: number, what: string, most: number) => void {
  return (amount, what, most) => {
    if (amount <= most) return
    throw new AgentError('RESOURCE_EXHAUSTED', `tenant ${tenant}: ${amount} ${what}, want at most ${most}`)
  }
}

function memoryOf({ board }: Partial<Specification> = {}): number {
  return Number((board?.memoryMib ?? 0n) + (board?.room?.memoryMib ?? 0n))
}

function sum(numbers: readonly number[]): number {
  return numbers.reduce((total, each) => total + each, 0)
}

function tenantOf({ properties }: Pick<QuotaUse, 'properties'>): string {
  return properties?.tenant ?? ''
}
