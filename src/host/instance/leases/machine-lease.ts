import { abortable } from '../../../base/abort.ts'
import { AgentError, messageOf } from '../../../base/errors.ts'
import type { Logger } from '../../../base/log.ts'
import {
  type DeepPartial,
  EnsureVmRequest,
  type GetVmRequest,
  RenewLeaseRequest,
  type Vm,
  type VmSettings,
} from '../../../gen/microvm/controller/v1/controller.ts'
import { FenceVolumeRequest, type FenceVolumeResponse } from '../../../gen/microvm/instance/v1/handover.ts'
import {
  type HypervisorID,
  LeaseMode,
  type RunLeaseUpdate,
  RunLeaseUpdate_Status,
  type MigrationSwitchoverRequest_VolumePlace as VolumePlace,
} from '../../../gen/vm.ts'
import type { Clock } from '../../../os/clock.ts'
import type { PacketFilters } from '../filters/nft.ts'
import type { Holder } from '../holder/holder.ts'
import { LEASE_ENDED, LeaseKeeper } from './lease-keeper.ts'
import { type FencedTap, makeFence, openFences } from './network-fence.ts'
import { followRunLease } from './run-lease.ts'
import type { Reach } from './volumes.ts'

/** The controllers, as leases need them. Calls reject with UNAVAILABLE when none answers. */
export interface LeaseController {
  ensureVm(request: EnsureVmRequest, signal: AbortSignal): Promise<unknown>
  removeVm(us: HypervisorID): Promise<void>
  renewLease(request: RenewLeaseRequest, signal: AbortSignal): Promise<RunLeaseUpdate>
  getVm(request: GetVmRequest): Promise<Vm>
  /** Asks another host. */
  fenceVolume(host: string, request: FenceVolumeRequest, signal: AbortSignal): Promise<FenceVolumeResponse>
  /** Ends with the signal. */
  runLease(us: HypervisorID, signal: AbortSignal): AsyncIterable<RunLeaseUpdate>
}

export interface MachineLeaseParts {
  /** The present run of the machine, for controllers. */
  readonly us: () => HypervisorID
  /** While it is so, a controller does not end the machine. */
  readonly isOnItsWay: () => boolean
  readonly settings: DeepPartial<VmSettings>
  /** The disks that only this machine may write to, and where they are. */
  readonly volumes?: DeepPartial<VolumePlace>[]
  readonly controller: LeaseController
  readonly clock: Pick<Clock, 'boottimeNs' | 'sleep' | 'startTimer'>
  readonly filters: PacketFilters
  readonly log: Logger
  /** Ends the machine at once. */
  readonly terminate: (reason: string) => void
}

/** Until a move is asked again whether it is over. */
const MOVE_MS = 1000
/** For a first grant. */
const ACQUIRE_MS = 30_000

/** What controllers say of one run of a machine, and what becomes of it without them. */
export class MachineLease {
  readonly #parts: MachineLeaseParts
  readonly #over = new AbortController()
  readonly #fences = new Map<string, FencedTap>()
  /** The end of the last grant; 0 before the first one. */
  #endNs = 0n
  #isOpening = false
  #isRegistered: boolean
  #keeper: LeaseKeeper | undefined
  #takenIn = Promise.resolve()
  #hasEnded = false

  constructor(parts: MachineLeaseParts, { isRegistered }: { readonly isRegistered: boolean }) {
    this.#parts = parts
    this.#isRegistered = isRegistered
  }

  /** The run, for controllers. */
  get us(): HypervisorID {
    return this.#parts.us()
  }

  /**
   * Makes this run known to the controllers. Rejects with FAILED_PRECONDITION when another one runs the machine, and with the
   * reason of `signal`.
   */
  async register(signal: AbortSignal): Promise<void> {
    const { settings, controller, volumes = [] } = this.#parts
    const request = EnsureVmRequest.fromPartial({ us: this.us, settings, volumes })
    await controller.ensureVm(request, AbortSignal.any([this.#over.signal, signal]))
    this.#isRegistered = true
  }

  /** Asks the host that has the disk to let this machine alone write to it. */
  async fenceVolume(host: string, key: string, signal: AbortSignal): Promise<Reach> {
    return await this.#askHost(host, FenceVolumeRequest.fromPartial({ us: this.us, key }), signal)
  }

  /** Asks that host how large the disk is, and whether it would serve it to this one. Resolves with bytes. */
  async lookAtVolume(host: string, key: string, signal: AbortSignal): Promise<number> {
    const request = FenceVolumeRequest.fromPartial({ us: this.us, key, lookOnly: true })
    return Number((await this.#askHost(host, request, signal)).sizeBytes)
  }

  /** Waits for a grant, and sets the end of the machine by it. Rejects with UNAVAILABLE when none comes. */
  async acquire(holder: Holder, signal: AbortSignal): Promise<void> {
    this.#keeper?.close()
    const keeper = this.#keeperFor(holder, 0n)
    const late = AbortSignal.timeout(ACQUIRE_MS)
    try {
      await keeper.acquire(AbortSignal.any([signal, late]))
    } catch (error) {
      keeper.close()
      if (!late.aborted || signal.aborted) throw error
      throw new AgentError('UNAVAILABLE', `lease: no grant within ${ACQUIRE_MS} ms`, { cause: error })
    }
    void keeper.keep()
  }

  /** Goes on with the lease that an earlier daemon has kept. */
  takeIn(holder: Holder, taps: readonly FencedTap[]): Promise<void> {
    this.#takenIn = this.#takeIn(holder, taps)
    return this.#takenIn
  }

  async #takeIn(holder: Holder, taps: readonly FencedTap[]): Promise<void> {
    const held = await holder.heldLease()
    // It gets its lease when it is to run here.
    if (this.#keeper !== undefined || (held === undefined && this.#parts.isOnItsWay())) return
    if (held === undefined || held.hasEnded) return this.#end(LEASE_ENDED)
    this.#endNs = held.untilNs
    const keeper = this.#keeperFor(holder, held.untilNs)
    // Others may have taken the rules away.
    for (const tap of taps)
      await this.fence(tap).catch((error) =>
        this.#parts.log.warn('tap not fenced', { interface: tap.interfaceName, error: messageOf(error) }),
      )
    void keeper.keep()
  }

  /**
   * Waits for a grant of the present run, in place of one that may have been given up with an earlier run. Rejects with the reason of
   * `signal`, and where no lease is kept. A machine that wants no grants, or has ended, waits for none.
   */
  async renewed(signal: AbortSignal): Promise<void> {
    if (this.#parts.settings.leaseMode !== LeaseMode.LM_FULL_LEASES) return
    await abortable(this.#takenIn, signal)
    if (this.#keeper === undefined) throw new AgentError('FAILED_PRECONDITION', 'lease: none is kept here')
    await this.#keeper.renewed(signal).catch((error) => {
      if (!this.#over.signal.aborted) throw error
    })
  }

  /** Lets the guest send by the tap only while the lease lasts. */
  async fence(tap: FencedTap): Promise<void> {
    await makeFence(this.#parts, tap)
    this.#fences.set(tap.table, tap)
    await openFences(this.#parts, [tap], this.#keeper?.untilNs ?? 0n)
  }

  /** The fence is about to be removed. */
  unfence(table: string): void {
    this.#fences.delete(table)
  }

  /** Does what the controllers say, until the lease is closed. */
  follow(): void {
    const { clock, log } = this.#parts
    const onTerminate = () => this.#end('terminated by the controller')
    void followRunLease(
      { clock, log, onTerminate, open: (signal) => this.#updates(signal) },
      this.#over.signal,
    )
  }

  /** The holder may have ended it with the lease, before this process could. */
  machineHasEnded(): void {
    if (this.#endNs !== 0n && this.#endNs <= this.#parts.clock.boottimeNs()) this.#end(LEASE_ENDED)
    this.close()
  }

  /** This process does no more for the machine. */
  close(): void {
    this.#over.abort(new AgentError('CANCELLED', 'lease: closed'))
    this.#keeper?.close()
  }

  /** A controller that did not answer at the start, or has lost the machine, is told of it now. */
  async *#updates(signal: AbortSignal): AsyncGenerator<RunLeaseUpdate> {
    const { clock, controller, isOnItsWay, log } = this.#parts
    while (isOnItsWay()) await clock.sleep(MOVE_MS, signal)
    if (!this.#isRegistered)
      await this.register(signal).catch((error) => {
        if (!isCode(error, 'FAILED_PRECONDITION')) throw error
        log.warn('another hypervisor runs the machine', { error: messageOf(error) })
      })
    try {
      for await (const update of controller.runLease(this.us, signal)) {
        if (isOnItsWay()) return
        yield update
      }
    } catch (error) {
      if (isCode(error, 'NOT_FOUND')) this.#isRegistered = false
      throw error
    }
  }

  #keeperFor(holder: Holder, untilNs: bigint): LeaseKeeper {
    const { clock, log } = this.#parts
    const parts = {
      clock,
      log,
      renew: (nonce: Uint8Array, signal: AbortSignal) => this.#renew(nonce, signal),
      extend: async (endNs: bigint) => {
        await holder.setLease(endNs)
        this.#endNs = endNs
        // A renewal does not wait for nft(8).
        void this.#openAll()
      },
      onEnded: (reason: string) => this.#end(reason),
    }
    this.#keeper = new LeaseKeeper(parts, untilNs)
    return this.#keeper
  }

  /** What a controller says of the end of a machine on its way to another host, or of a run that was taken back, is the move's matter. */
  async #renew(nonce: Uint8Array, signal: AbortSignal): Promise<RunLeaseUpdate> {
    const { controller, isOnItsWay } = this.#parts
    const { us } = this
    const isMoving = isOnItsWay()
    const update = await controller.renewLease(RenewLeaseRequest.fromPartial({ us, nonce }), signal)
    if (update.status !== RunLeaseUpdate_Status.STATUS_TERMINATE || !(isMoving || isOnItsWay())) return update
    throw new AgentError(
      'FAILED_PRECONDITION',
      `lease: another hypervisor than run ${us.runId} may run the machine`,
    )
  }

  #askHost(host: string, request: FenceVolumeRequest, signal: AbortSignal): Promise<FenceVolumeResponse> {
    return this.#parts.controller.fenceVolume(host, request, AbortSignal.any([this.#over.signal, signal]))
  }

  /** Opens the fences until the end of the last grant. They close by themselves, and the next grant opens them. */
  async #openAll(): Promise<void> {
    const { log } = this.#parts
    if (this.#isOpening) return
    this.#isOpening = true
    for (let endNs = 0n; endNs !== this.#endNs && !this.#over.signal.aborted; ) {
      endNs = this.#endNs
      await openFences(this.#parts, [...this.#fences.values()], endNs).catch((error) =>
        log.warn('taps not opened', { error: messageOf(error) }),
      )
    }
    this.#isOpening = false
  }

  #end(reason: string): void {
    if (this.#hasEnded || this.#over.signal.aborted) return
    this.#hasEnded = true
    this.#parts.terminate(reason)
  }
}

function isCode(error: unknown, code: AgentError['code']): boolean {
  return error instanceof AgentError && error.code === code
}
