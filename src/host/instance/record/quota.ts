import { AgentError } from '../../../base/errors.ts'
import { type Instance, State } from '../../../gen/microvm/instance/v1/instance.ts'

/** What the instances of one tenant may take together. */
export interface Quota {
  readonly instances: number
  /** Of the guests that are not stopped: with the room for more, or the limit of an instance where that is larger. */
  readonly memoryMib: number
  readonly cpus: number
}

export const DEFAULT_QUOTA: Quota = { instances: 64, memoryMib: 65_536, cpus: 128 }

/** By the names of the tenants that have one. */
export type Quotas = ReadonlyMap<string, Quota>

/** An instance, as it counts. */
export type QuotaUse = Pick<Instance, 'properties' | 'specification' | 'state'>

/** Throws RESOURCE_EXHAUSTED with the numbers when a tenant would have more than its quota with the machine of `next`. */
export function checkQuota(quotas: Quotas, next: QuotaUse, others: readonly QuotaUse[]): void {
  const tenant = tenantOf(next)
  const quota = quotas.get(tenant)
  if (quota === undefined) return
  const check = (amount: number, what: string, most: number) => {
    if (amount <= most) return
    throw new AgentError('RESOURCE_EXHAUSTED', `tenant ${tenant}: ${amount} ${what}, want at most ${most}`)
  }
  const own = others.filter((other) => tenantOf(other) === tenant)
  const machines = [next, ...own.filter(({ state }) => state !== State.STOPPED)]
  const boards = machines.flatMap(({ specification }) => specification?.board ?? [])
  const memory = machines.map(({ specification: { board, limits } = {} }) =>
    Math.max(
      Number((board?.memoryMib ?? 0n) + (board?.room?.memoryMib ?? 0n)),
      Number(limits?.memoryMib ?? 0n),
    ),
  )
  const sum = (numbers: readonly number[]) => numbers.reduce((total, each) => total + each, 0)
  check(own.length + 1, 'instances', quota.instances)
  check(sum(memory), 'MiB of memory in machines', quota.memoryMib)
  check(sum(boards.map(({ cpus, room }) => cpus + (room?.cpus ?? 0))), 'CPUs in machines', quota.cpus)
}

function tenantOf({ properties }: QuotaUse): string {
  return properties?.tenant ?? ''
}
