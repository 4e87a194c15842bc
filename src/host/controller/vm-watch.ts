import { cancelled } from '../../base/abort.ts'
import { AgentError } from '../../base/errors.ts'
import type { Logger } from '../../base/log.ts'
import type { KeyValue } from '../../gen/etcd/kv.ts'
import { Vm } from '../../gen/microvm/controller/v1/controller.ts'
import type { HypervisorID, RunLeaseUpdate } from '../../gen/vm.ts'
import { RunLeaseUpdate_Status } from '../../gen/vm.ts'
import { checkedHypervisor } from './hypervisor-id.ts'
import { statusFor } from './leases.ts'
import type { EtcdClient } from './store/etcd-client.ts'
import { VMS, vmKey } from './store/keys.ts'
import type { VmRecords } from './store/vm-records.ts'
import { watchPrefix } from './store/watch-prefix.ts'
import { nameOf, notFound } from './vms.ts'

interface Change {
  readonly modRevision: bigint
  /** Undefined when the record is gone. */
  readonly vm: Vm | undefined
}

/** Tells hypervisors whether they may run their VMs, as etcd's watch tells of changes. Keeps nothing of VMs without a caller. */
export class VmWatch {
  readonly #records: VmRecords
  /** By keys of etcd. */
  readonly #calls = new Map<string, readonly LeaseCall[]>()
  readonly #ended = new AbortController()
  readonly #watching: Promise<void>
  #streams = 0

  constructor({
    records,
    etcd,
    log,
  }: { readonly records: VmRecords; readonly etcd: EtcdClient; readonly log: Logger }) {
    this.#records = records
    const listener = {
      onAll: (entries: readonly KeyValue[]) => this.#onAll(entries),
      onChange: (entry: KeyValue, isRemoved: boolean) => this.#tell(keyText(entry), entry, isRemoved),
    }
    this.#watching = watchPrefix(etcd, { prefix: VMS, listener, log, signal: this.#ended.signal })
  }

  get streams(): number {
    return this.#streams
  }

  /**
   * Sends the status of `us` now, and at each change, until the signal fires or `us` was told to end. Throws NOT_FOUND for a VM that is
   * not there: nobody is told to end because of what etcd does not have.
   */
  runLease(
    id: HypervisorID | undefined,
    { signal, send }: { readonly signal: AbortSignal; readonly send: (update: RunLeaseUpdate) => void },
  ): Promise<void> {
    return new Promise((resolve, reject) => {
      this.#ended.signal.throwIfAborted()
      const call = new LeaseCall(checkedHypervisor('us', id), send, (failure) => {
        this.#remove(call)
        if (failure === undefined) resolve()
        else reject(failure)
      })
      this.#add(call)
      signal.addEventListener('abort', () => call.end(cancelled()), { once: true })
      this.#tellPresent(call).catch(call.end)
    })
  }

  /** Ends the watch and the calls. */
  async close(): Promise<void> {
    const stops = new AgentError('UNAVAILABLE', 'the controller stops')
    this.#ended.abort(stops)
    for (const calls of this.#calls.values()) for (const call of calls) call.end(stops)
    await this.#watching
  }

  #add(call: LeaseCall): void {
    const key = keyOf(call)
    this.#calls.set(key, (this.#calls.get(key) ?? []).concat(call))
    this.#streams += 1
  }

  #remove(call: LeaseCall): void {
    const key = keyOf(call)
    const calls = this.#calls.get(key) ?? []
    const others = calls.filter((each) => each !== call)
    if (others.length === calls.length) return
    this.#streams -= 1
    if (others.length === 0) this.#calls.delete(key)
    else this.#calls.set(key, others)
  }

  async #tellPresent(call: LeaseCall): Promise<void> {
    const name = nameOf(call.us)
    const stored = await this.#records.read(name)
    if (stored === undefined) throw notFound(name)
    call.onChange(stored)
  }

  /** A VM that has gone while the watch was broken is told of at the next call only. */
  #onAll(entries: readonly KeyValue[]): void {
    for (const entry of entries) this.#tell(keyText(entry), entry, false)
  }

  #tell(key: string, { value, modRevision }: KeyValue, isRemoved: boolean): void {
    const calls = this.#calls.get(key)
    if (calls === undefined) return
    const vm = isRemoved ? undefined : Vm.decode(value)
    for (const call of calls) call.onChange({ modRevision, vm })
  }
}

/** A call of RunLease. A host has one for each VM, so that little is kept of it. */
class LeaseCall {
  readonly us: HypervisorID
  /** Called with what the call has failed with; with undefined when `us` was told to end. */
  readonly end: (failure: AgentError | undefined) => void
  readonly #send: (update: RunLeaseUpdate) => void
  #revision = 0n
  #status: RunLeaseUpdate_Status | undefined
  #epoch = 0n

  constructor(us: HypervisorID, send: (update: RunLeaseUpdate) => void, end: LeaseCall['end']) {
    this.us = us
    this.end = end
    this.#send = send
  }

  onChange({ modRevision, vm }: Change): void {
    if (modRevision <= this.#revision) return
    this.#revision = modRevision
    if (vm === undefined) {
      this.end(notFound(nameOf(this.us)))
      return
    }
    const update = statusFor(vm, this.us)
    if (this.#status === update.status && this.#epoch === update.epoch) return
    this.#status = update.status
    this.#epoch = update.epoch
    this.#send(update)
    if (update.status === RunLeaseUpdate_Status.STATUS_TERMINATE) this.end(undefined)
  }
}

function keyOf({ us }: LeaseCall): string {
  return vmKey(nameOf(us)).toString()
}

function keyText({ key }: KeyValue): string {
  return Buffer.from(key).toString()
}
