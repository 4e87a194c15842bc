import { AgentError } from '../../../base/errors.ts'
import {
  Snapshot_Consistency as Consistency,
  type Instance,
  type ListSnapshotsResponse,
  type RemoveSnapshotRequest,
  type RemoveSnapshotResponse,
  type RevertRequest,
  type Snapshot,
  type SnapshotRequest,
  State,
} from '../../../gen/microvm/instance/v1/instance.ts'
import type { Caller, OwnerCheck } from '../../instance/instances.ts'
import { mockMoves } from '../hosts/mock-moves.ts'

/** The snapshots and moves of instances without machines: names and configurations. */
export abstract class MockSnapshots {
  readonly #kept = new Map<string, readonly Snapshot[]>()

  readonly move = mockMoves({
    seen: (key, caller) => this.seen(key, caller),
    remove: (key, caller) => this.remove(key, caller),
  })

  /** The instance, which the caller may see. */
  protected abstract seen(key: string, caller: Caller): Instance
  abstract remove(key: string, caller: Caller): Promise<void>
  protected abstract reverted(key: string, change: Pick<Instance, 'specification'>): Instance

  async snapshot({ disks, key, memory, name, quiesce }: SnapshotRequest, caller: Caller): Promise<Snapshot> {
    const { specification, state } = this.seen(key, caller)
    if (quiesce) throw new AgentError('UNIMPLEMENTED', 'quiesce: not available')
    if (memory) throw new AgentError('UNIMPLEMENTED', 'memory: a mock has none')
    if (this.#of(key).some((each) => each.name === name))
      throw new AgentError('ALREADY_EXISTS', `instance ${key}: snapshot ${name}: exists already`)
    const all = Object.entries(specification?.devices ?? {}).filter(([, { disk }]) => disk !== undefined)
    const snapshot: Snapshot = {
      ...{ name, createdMs: BigInt(Date.now()), stillUs: 0n, specification, machine: '', memory: false },
      ...{ memoryBytes: 0n, waitingUs: 0n },
      consistency: state === State.STOPPED ? Consistency.STOPPED_MACHINE : Consistency.CRASH,
      disks: all
        .filter(([device]) => disks.length === 0 || disks.includes(device))
        .map(([device, { backend }]) => ({ device, backend, layer: 0 })),
    }
    this.#kept.set(key, [...this.#of(key), snapshot])
    return snapshot
  }

  async suspend(): Promise<never> {
    throw new AgentError('UNIMPLEMENTED', 'a mock has no machines that could be saved')
  }

  async clone(): Promise<never> {
    return await this.suspend()
  }

  async listSaved(): Promise<never> {
    return await this.suspend()
  }

  async deleteSaved(): Promise<never> {
    return await this.suspend()
  }

  async snapshots(key: string, caller: Caller): Promise<ListSnapshotsResponse> {
    this.seen(key, caller)
    return { snapshots: [...this.#of(key)], layers: [] }
  }

  async revert({ key, name }: RevertRequest, checkOwner: OwnerCheck, caller: Caller): Promise<Instance> {
    const { properties, state } = this.seen(key, caller)
    if (state !== State.STOPPED)
      throw new AgentError('FAILED_PRECONDITION', `instance ${key}: not stopped, want it stopped`)
    const { specification } = this.#get(key, name)
    if (specification !== undefined) await checkOwner(properties?.tenant ?? '', specification)
    return this.reverted(key, { specification })
  }

  async removeSnapshot(
    { all, key, name }: RemoveSnapshotRequest,
    caller: Caller,
  ): Promise<RemoveSnapshotResponse> {
    this.seen(key, caller)
    const gone = all ? undefined : this.#get(key, name)
    this.#kept.set(key, all ? [] : this.#of(key).filter((each) => each !== gone))
    return { stillUs: 0n }
  }

  #of(key: string): readonly Snapshot[] {
    return this.#kept.get(key) ?? []
  }

  #get(key: string, name: string): Snapshot {
    const found = this.#of(key).find((each) => each.name === name)
    if (found !== undefined) return found
    throw new AgentError('NOT_FOUND', `instance ${key}: snapshot ${name}: not found`)
  }
}
