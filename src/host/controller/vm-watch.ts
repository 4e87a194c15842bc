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

type OnChange = (change: Change) => void

/** Tells hypervisors whether they may run their VMs, as etcd's watch tells of changes. Keeps nothing of VMs without a caller. */
export class VmWatch {
  readonly #records: VmRecords
  /** By keys of etcd. */
  readonly #callers = new Map<string, Set<OnChange>>()
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
   * The status of `us` now, and at each change, until the signal fires or `us` was told to end. Throws NOT_FOUND for a VM that is
   * not there: nobody is told to end because of what etcd does not have.
   */
  async *runLease(
    id: HypervisorID | undefined,
    signal: AbortSignal,
  ): AsyncGenerator<RunLeaseUpdate, void, undefined> {
    const us = checkedHypervisor('us', id)
    const name = nameOf(us)
    // Of several changes only the last one counts.
    let latest: Change | undefined
    let wake = () => {}
    const forget = this.#listen(vmKey(name).toString(), (change) => {
      if (latest === undefined || change.modRevision > latest.modRevision) latest = change
      wake()
    })
    const onAbort = () => wake()
    signal.addEventListener('abort', onAbort, { once: true })
    this.#streams += 1
    try {
      const stored = await this.#records.read(name)
      if (stored === undefined) throw notFound(name)
      let present: Change = stored
      let sent: RunLeaseUpdate | undefined
      while (!signal.aborted) {
        if (present.vm === undefined) throw notFound(name)
        const update = statusFor(present.vm, us)
        if (sent?.status !== update.status || sent.epoch !== update.epoch) {
          sent = update
          yield update
        }
        if (update.status === RunLeaseUpdate_Status.STATUS_TERMINATE) return
        while (!signal.aborted && (latest === undefined || latest.modRevision <= present.modRevision)) {
          const { promise, resolve } = Promise.withResolvers<void>()
          wake = resolve
          await promise
        }
        present = latest ?? present
      }
    } finally {
      this.#streams -= 1
      signal.removeEventListener('abort', onAbort)
      forget()
    }
  }

  /** Ends the watch. */
  async close(): Promise<void> {
    this.#ended.abort()
    await this.#watching
  }

  #listen(key: string, onChange: OnChange): () => void {
    const callers = this.#callers.get(key) ?? new Set()
    this.#callers.set(key, callers.add(onChange))
    return () => {
      callers.delete(onChange)
      if (callers.size === 0 && this.#callers.get(key) === callers) this.#callers.delete(key)
    }
  }

  /** A VM that has gone while the watch was broken is told of at the next call only. */
  #onAll(entries: readonly KeyValue[]): void {
    for (const entry of entries) this.#tell(keyText(entry), entry, false)
  }

  #tell(key: string, { value, modRevision }: KeyValue, isRemoved: boolean): void {
    const callers = this.#callers.get(key)
    if (callers === undefined) return
    const vm = isRemoved ? undefined : Vm.decode(value)
    for (const onChange of callers) onChange({ modRevision, vm })
  }
}

function keyText({ key }: KeyValue): string {
  return Buffer.from(key).toString()
}
