import { abortable } from '../../../../src/base/abort.ts'
import { AgentError } from '../../../../src/base/errors.ts'
import {
  type EnsureVmRequest,
  type GetVmRequest,
  Vm,
} from '../../../../src/gen/microvm/controller/v1/controller.ts'
import { type HypervisorID, RunLeaseUpdate, RunLeaseUpdate_Status as Status } from '../../../../src/gen/vm.ts'
import type { LeaseController } from '../../../../src/host/instance/leases/machine-lease.ts'

/** A controller in memory. */
export class FakeLeaseController implements LeaseController {
  readonly vms = new Map<string, EnsureVmRequest>()
  readonly removed: HypervisorID[] = []
  /** Nobody answers. */
  isAway = false
  /** Another one runs the machines. */
  isTaken = false
  ttlMs = 0n
  /** How often a stream was asked for. */
  streams = 0
  readonly #open = new Set<(update: RunLeaseUpdate) => void>()

  async ensureVm(request: EnsureVmRequest): Promise<void> {
    this.#answer()
    if (this.isTaken) throw new AgentError('FAILED_PRECONDITION', 'vm: b/x runs it')
    this.vms.set(request.us?.vmName ?? '', request)
  }

  async removeVm(us: HypervisorID): Promise<void> {
    this.#answer()
    this.removed.push(us)
  }

  async renewLease({ nonce }: { nonce: Uint8Array }): Promise<RunLeaseUpdate> {
    this.#answer()
    return this.#update({ nonce })
  }

  /** An epoch for each run. */
  async getVm({ namespace, name }: GetVmRequest): Promise<Vm> {
    this.#answer()
    const known = this.vms.get(name)
    if (known?.us === undefined) throw new AgentError('NOT_FOUND', `vm ${name}: not there`)
    const epoch = known.us.runId
    const volumes = known.volumes.map((volume) => ({ ...volume, epoch }))
    return Vm.fromPartial({ namespace, name, authoritative: known.us, generation: epoch, volumes })
  }

  /** What the other hosts answer. */
  fenceVolume: LeaseController['fenceVolume'] = async (host) => {
    throw new AgentError('UNAVAILABLE', `host ${host}: not known`)
  }

  async *runLease(_: HypervisorID, signal: AbortSignal): AsyncGenerator<RunLeaseUpdate> {
    this.streams += 1
    this.#answer()
    yield this.#update()
    for (;;) {
      const said = Promise.withResolvers<RunLeaseUpdate>()
      this.#open.add(said.resolve)
      yield await abortable(said.promise, signal)
    }
  }

  say(status: Status): void {
    for (const resolve of this.#open) resolve(RunLeaseUpdate.fromPartial({ status }))
    this.#open.clear()
  }

  #update(change: Partial<RunLeaseUpdate> = {}): RunLeaseUpdate {
    const status = this.isTaken ? Status.STATUS_TERMINATE : Status.STATUS_OK
    return RunLeaseUpdate.fromPartial({ status, epoch: 1n, ttlMs: this.ttlMs, ...change })
  }

  #answer(): void {
    if (this.isAway) throw new AgentError('UNAVAILABLE', 'no controller answers')
  }
}
