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
  readonly #calls = new Map<string, Set<LeaseCall>>()
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
  async runLease(
    id: HypervisorID | undefined,
    { signal, send }: { readonly signal: AbortSignal; readonly send: (update: RunLeaseUpdate) => void },
  ): Promise<void> {
    this.#ended.signal.throwIfAborted()
    const call = new LeaseCall(checkedHypervisor('us', id), send)
    const key = vmKey(nameOf(call.us)).toString()
    const calls = this.#calls.get(key) ?? new Set()
    this.#calls.set(key, calls.add(call))
    this.#streams += 1
    signal.addEventListener('abort', () => call.end(cancelled()), { once: true })
    try {
      await this.#tellPresent(call)
      const failure = await call.over
      if (failure !== undefined) throw failure
    } finally {
      this.#streams -= 1
      calls.delete(call)
      if (calls.size === 0 && this.#calls.get(key) === calls) this.#calls.delete(key)
    }
  }

  /** Ends the watch and the calls. */
  async close(): Promise<void> {
    const stops = new AgentError('UNAVAILABLE', 'the controller stops')
    this.#ended.abort(stops)
    for (const calls of this.#calls.values()) for (const call of calls) call.end(stops)
    await this.#watching
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
  /** With what the call has failed; undefined when `us` was told to end. */
  readonly over: Promise<AgentError | undefined>
  readonly end: (failure: AgentError | undefined) => void
  readonly #send: (update: RunLeaseUpdate) => void
  #revision = 0n
  #status: RunLeaseUpdate_Status | undefined
  #epoch = 0n

  constructor(us: HypervisorID, send: (update: RunLeaseUpdate) => void) {
    const { promise, resolve } = Promise.withResolvers<AgentError | undefined>()
    this.us = us
    this.over = promise
    this.end = resolve
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

function keyText({ key }: KeyValue): string {
  return Buffer.from(key).toString()
}
