import { AgentError } from '../../../base/errors.ts'
import type { KeyValue } from '../../../gen/etcd/kv.ts'
import type { RequestOp } from '../../../gen/etcd/rpc.ts'
import { LeaseRecord, Vm } from '../../../gen/microvm/controller/v1/controller.ts'
import type { EtcdClient } from './etcd-client.ts'
import { endOfPrefix, get, leaseKey, put, runsOf, unchanged, VMS, type VmName, vmKey } from './keys.ts'

export interface StoredVm {
  readonly vm: Vm
  readonly modRevision: bigint
}

export interface StoredLease {
  readonly record: LeaseRecord
  readonly modRevision: bigint
  /** Id of the etcd lease that it ends with. */
  readonly etcdLease: bigint
}

/** A VM and its lease at one moment, and which member of etcd told so in which term. */
export interface VmState {
  readonly stored: StoredVm | undefined
  readonly lease: StoredLease | undefined
  readonly memberId: bigint
  readonly term: bigint
}

/** What a change makes of a VM. */
export interface VmChange {
  readonly vm: Vm
  /** Wants the VM's lease to have ended. */
  readonly wantsNoLease?: boolean
  /** Further changes of the same transaction. */
  readonly operations?: readonly RequestOp[]
  /** The etcd lease that the record ends with; 0 by default, for none. */
  readonly etcdLease?: bigint
}

/** Others may change the same VM at the same time. */
const MOST_TRIES = 16

/** The VMs in etcd. All reads are of the present state, whichever member answers. */
export class VmRecords {
  readonly #etcd: EtcdClient

  constructor(etcd: EtcdClient) {
    this.#etcd = etcd
  }

  /** The record of a VM, one that has been removed too. */
  async read(name: VmName): Promise<StoredVm | undefined> {
    const { kvs } = await this.#etcd.range({ key: vmKey(name) })
    return storedVm(kvs[0])
  }

  async readState(name: VmName): Promise<VmState> {
    const { responses, header } = await this.#etcd.txn({ success: [get(vmKey(name)), get(leaseKey(name))] })
    const [vm, lease] = responses.map(({ responseRange }) => responseRange?.kvs[0])
    return {
      stored: storedVm(vm),
      lease: lease && {
        record: LeaseRecord.decode(lease.value),
        modRevision: lease.modRevision,
        etcdLease: lease.lease,
      },
      memberId: header?.memberId ?? 0n,
      term: header?.raftTerm ?? 0n,
    }
  }

  /** Up to `limit` VMs after the key `after` (empty for the first), those of one namespace alone when that is not empty. */
  async list(
    namespace: string,
    after: string,
    limit: number,
  ): Promise<{ readonly vms: readonly Vm[]; readonly next: string }> {
    const prefix = namespace === '' ? VMS : `${VMS}${namespace}/`
    const key = after === '' ? Buffer.from(prefix) : Buffer.from(`${VMS}${after}\0`)
    const { kvs, more } = await this.#etcd.range({ key, rangeEnd: endOfPrefix(prefix), limit: BigInt(limit) })
    const last = kvs.at(-1)
    return {
      vms: kvs.map(({ value }) => Vm.decode(value)),
      next: more && last !== undefined ? Buffer.from(last.key).toString().slice(VMS.length) : '',
    }
  }

  /** How many VMs the host runs. */
  async countOf(host: string): Promise<bigint> {
    const prefix = runsOf(host)
    const range = { key: Buffer.from(prefix), rangeEnd: endOfPrefix(prefix), limit: 1n }
    return (await this.#etcd.range(range)).count
  }

  /**
   * Changes a VM in one transaction. `edit` makes the new record of the present one and of etcd's revision, which only grows. It throws
   * to refuse, or returns undefined when nothing is to be changed; it is called again when another has changed the VM meanwhile. Throws
   * what `leaseRemains` returns when the change wants the lease to have ended, and it has not. Nothing is changed any more once `signal`
   * fires, of which the caller may have been told before.
   */
  async change(
    name: VmName,
    edit: (current: Vm | undefined, revision: bigint) => VmChange | undefined,
    signal: AbortSignal,
    leaseRemains?: () => AgentError,
  ): Promise<Vm | undefined> {
    const key = vmKey(name)
    // What this call may have written, although the answer was lost.
    let unanswered: Uint8Array | undefined
    for (let tries = 0; tries < MOST_TRIES; tries++) {
      const { header, kvs } = await this.#etcd.range({ key })
      const [current] = kvs
      if (current !== undefined && unanswered !== undefined && Buffer.from(unanswered).equals(current.value))
        return Vm.decode(current.value)
      const change = edit(current && Vm.decode(current.value), header?.revision ?? 0n)
      if (change === undefined) return current && Vm.decode(current.value)
      const value = Vm.encode(change.vm).finish()
      const transaction = {
        compare: [
          unchanged(key, current?.modRevision ?? 0n),
          ...(change.wantsNoLease ? [unchanged(leaseKey(name), 0n)] : []),
        ],
        success: [put(key, value, change.etcdLease), ...(change.operations ?? [])],
        failure: [get(key)],
      }
      const { succeeded, isRepeated, responses } = await this.#etcd.txn(transaction, signal)
      if (succeeded) return change.vm
      if (isRepeated) unanswered = value
      const [found] = responses[0]?.responseRange?.kvs ?? []
      const isUnchanged = (found?.modRevision ?? 0n) === (current?.modRevision ?? 0n)
      if (isUnchanged && leaseRemains !== undefined) throw leaseRemains()
    }
    throw new AgentError(
      'ABORTED',
      `vm ${name.namespace}/${name.name}: changed by others ${MOST_TRIES} times, want the call again`,
    )
  }
}

function storedVm(entry: KeyValue | undefined): StoredVm | undefined {
  return entry && { vm: Vm.decode(entry.value), modRevision: entry.modRevision }
}
