import { AgentError } from '../../base/errors.ts'
import type { Logger } from '../../base/log.ts'
import { LeaseRecord, type RenewLeaseRequest, type Vm } from '../../gen/microvm/controller/v1/controller.ts'
import { type HypervisorID, LeaseMode, RunLeaseUpdate, RunLeaseUpdate_Status } from '../../gen/vm.ts'
import { isLeaseGone } from './hosts.ts'
import { checkedHypervisor, hypervisorText, invalid, isSameHypervisor } from './hypervisor-id.ts'
import type { EtcdClient } from './store/etcd-client.ts'
import { get, leaseKey, put, unchanged, type VmName, vmKey } from './store/keys.ts'
import type { StoredLease, StoredVm, VmRecords, VmState } from './store/vm-records.ts'
import { nameOf, notFound, textOf } from './vms.ts'

const MOST_NONCE_BYTES = 64
const TRIES = 4

/**
 * By how much an etcd lease is longer than what its holder is granted: a tenth, for clocks that run apart, and 2 s. A leader of etcd
 * may not know for so long that it was replaced.
 */
const DRIFT_PARTS = 10n
const MARGIN_MS = 2000n

/**
 * Leases of VMs with LM_FULL_LEASES. A grant counts from the moment when the hypervisor has sent its request, so that no delay makes
 * it longer. The record of the lease is in etcd before the answer is sent, and ends with an etcd lease that begins later and is
 * longer; another host gets the VM only once it has ended.
 */
export class Leases {
  readonly #records: VmRecords
  readonly #etcd: EtcdClient
  readonly #log: Logger

  constructor({
    records,
    etcd,
    log,
  }: { readonly records: VmRecords; readonly etcd: EtcdClient; readonly log: Logger }) {
    this.#records = records
    this.#etcd = etcd
    this.#log = log
  }

  /** Throws UNAVAILABLE when etcd does not answer: then nothing is granted. */
  async renew(request: RenewLeaseRequest): Promise<RunLeaseUpdate> {
    const us = checkedHypervisor('us', request.us)
    const { nonce } = request
    if (nonce.length === 0 || nonce.length > MOST_NONCE_BYTES)
      throw invalid(`nonce: ${nonce.length} bytes, want 1 to ${MOST_NONCE_BYTES}`)
    const name = nameOf(us)
    for (let tries = 0; tries < TRIES; tries++) {
      const state = await this.#records.readState(name)
      if (state.stored === undefined) throw notFound(name)
      const update = statusFor(state.stored.vm, us)
      if (update.status === RunLeaseUpdate_Status.STATUS_TERMINATE) return { ...update, nonce }
      if (update.ttlMs === 0n)
        throw new AgentError(
          'FAILED_PRECONDITION',
          `vm ${textOf(name)}: LM_STORAGE_LOCKING, want LM_FULL_LEASES for a lease`,
        )
      if (await this.#hold(name, us, { ...state, stored: state.stored })) return { ...update, nonce }
    }
    throw new AgentError(
      'UNAVAILABLE',
      `vm ${textOf(name)}: etcd has changed its leader or the VM meanwhile, want the call again`,
    )
  }

  /** Extends the record of the lease, or makes it. Returns false when it has to be tried again. */
  async #hold(
    name: VmName,
    us: HypervisorID,
    state: VmState & { readonly stored: StoredVm },
  ): Promise<boolean> {
    const { lease, stored } = state
    const isOurs =
      lease !== undefined &&
      isSameHypervisor(lease.record.holder, us) &&
      lease.record.epoch === stored.vm.generation
    return isOurs ? await this.#extend(name, lease, state) : await this.#grant(name, us, state)
  }

  /**
   * A leader of etcd that was replaced, and does not know it, may say that it has extended a lease. One member answers the three
   * requests in one term of a leader, and the last answer shows that this leader still had the others.
   */
  async #extend(name: VmName, lease: StoredLease, { stored, memberId, term }: VmState): Promise<boolean> {
    const { TTL: ttlSeconds, header } = await this.#etcd.keepAlive(lease.etcdLease)
    if (ttlSeconds <= 0n) return false
    const { succeeded, header: after } = await this.#etcd.txn({
      compare: [
        unchanged(vmKey(name), stored?.modRevision ?? 0n),
        unchanged(leaseKey(name), lease.modRevision),
      ],
      success: [get(leaseKey(name))],
    })
    const isOne = [header, after].every((each) => each?.memberId === memberId && each.raftTerm === term)
    return succeeded && isOne
  }

  /** Also in place of a record that an earlier run has left; not of one that another request has made meanwhile, which may last longer. */
  async #grant(
    name: VmName,
    us: HypervisorID,
    { lease, stored: { vm, modRevision } }: VmState & { readonly stored: StoredVm },
  ): Promise<boolean> {
    const etcdLease = await this.#etcd.grantLease(etcdSeconds(vm.settings?.leaseTtlMs ?? 0n))
    const record = LeaseRecord.encode({ holder: us, epoch: vm.generation }).finish()
    try {
      const { succeeded } = await this.#etcd.txn({
        compare: [unchanged(vmKey(name), modRevision), unchanged(leaseKey(name), lease?.modRevision ?? 0n)],
        success: [put(leaseKey(name), record, etcdLease)],
      })
      if (succeeded)
        this.#log.info('lease', {
          vm: textOf(name),
          kind: 'granted',
          hypervisor: hypervisorText(us),
          epoch: vm.generation,
        })
      return succeeded
    } catch (error) {
      if (isLeaseGone(error)) return false
      throw error
    }
  }
}

/** Seconds of the etcd lease for a grant of `ttlMs`. */
export function etcdSeconds(ttlMs: bigint): number {
  return Math.ceil(Number(ttlMs + ttlMs / DRIFT_PARTS + MARGIN_MS) / 1000)
}

/** What `us` is told of a VM: that it may run it, with the time of a lease, or that it ends. */
export function statusFor(vm: Vm, us: HypervisorID): RunLeaseUpdate {
  const { authoritative, generation: epoch, removed, settings } = vm
  if (removed || !isSameHypervisor(authoritative, us))
    return RunLeaseUpdate.fromPartial({ status: RunLeaseUpdate_Status.STATUS_TERMINATE, epoch })
  const ttlMs = settings?.leaseMode === LeaseMode.LM_FULL_LEASES ? settings.leaseTtlMs : 0n
  return RunLeaseUpdate.fromPartial({ status: RunLeaseUpdate_Status.STATUS_OK, epoch, ttlMs })
}
