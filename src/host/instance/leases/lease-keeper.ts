import { abortable, withTimeout } from '../../../base/abort.ts'
import { AgentError, messageOf } from '../../../base/errors.ts'
import type { Logger } from '../../../base/log.ts'
import { type RunLeaseUpdate, RunLeaseUpdate_Status as Status } from '../../../gen/vm.ts'
import type { Clock } from '../../../os/clock.ts'

export interface LeaseParts {
  readonly clock: Pick<Clock, 'boottimeNs' | 'sleep' | 'startTimer'>
  /** Asks the controller for a grant. An answer that comes after the next request is not wanted any more. */
  readonly renew: (nonce: Uint8Array, signal: AbortSignal) => Promise<RunLeaseUpdate>
  /** Has the machine end at this moment of CLOCK_BOOTTIME, whatever becomes of this process, and no earlier. */
  readonly extend: (untilNs: bigint) => Promise<void>
  /** Called once, when the machine must not run any more. */
  readonly onEnded: (reason: string) => void
  readonly log: Pick<Logger, 'warn' | 'info'>
}

/** Of the time of a grant, by which this host's clock may be slower than the controller's, */
const DRIFT_PER_MILLE = 10n
/** and what the holder's timer and a kill may take then. */
const KILL_MS = 50n
/** Why a machine has ended whose lease was not renewed. */
export const LEASE_ENDED = 'the lease has ended'

/** Renewals in the time of a grant. */
const RENEWALS = 3
const FIRST_PAUSE_MS = 100
const MAX_TTL_MS = 3_600_000n
const MS = 1_000_000n
/** Until the first grant, whose time is not known. */
const FIRST_ANSWER_MS = 5000

/** When the lease of a grant ends on this host: its time begins when its request was sent. */
export function endOfGrant(sentNs: bigint, ttlMs: bigint): bigint {
  return sentNs + (ttlMs - (ttlMs * DRIFT_PER_MILLE) / 1000n - KILL_MS) * MS
}

/**
 * Keeps the lease of a machine of LM_FULL_LEASES: asks for a grant three times in the time of one, and moves the end of the machine
 * with each. A grant whose nonce is not that of the last request is ignored, and so is one that has ended already.
 */
export class LeaseKeeper {
  readonly #parts: LeaseParts
  readonly #over = new AbortController()
  #sentNs = 0n
  #untilNs: bigint
  #ttlMs = 0n
  #epoch = 0n
  #hasEnded = false
  #isAcquiring = false

  /** `untilNs`: the end of a lease that an earlier daemon has kept. */
  constructor(parts: LeaseParts, untilNs = 0n) {
    this.#parts = parts
    this.#untilNs = untilNs
  }

  /** Of CLOCK_BOOTTIME; 0 before the first grant. */
  get untilNs(): bigint {
    return this.#untilNs
  }

  /** Of the last grant; 0 before the first one. */
  get epoch(): bigint {
    return this.#epoch
  }

  /** Waits for a grant. Rejects with the reason of `signal`, or with FAILED_PRECONDITION when another hypervisor runs the machine. */
  async acquire(signal: AbortSignal): Promise<void> {
    const both = AbortSignal.any([signal, this.#over.signal])
    this.#isAcquiring = true
    for (let pauseMs = FIRST_PAUSE_MS; !(await this.#renewed(both)); pauseMs *= 2) {
      both.throwIfAborted()
      if (this.#hasEnded)
        throw new AgentError('FAILED_PRECONDITION', 'lease: the controller has another hypervisor run it')
      await this.#parts.clock.sleep(Math.min(pauseMs, this.#intervalMs()), both)
    }
    this.#isAcquiring = false
  }

  /** Waits for a grant that is asked for from now on. Rejects with the reason of `signal`. */
  async renewed(signal: AbortSignal): Promise<void> {
    const both = AbortSignal.any([signal, this.#over.signal])
    while (!(await this.#renewed(both))) await this.#parts.clock.sleep(FIRST_PAUSE_MS, both)
  }

  /** Renews the lease until it ends or is closed; never rejects. */
  async keep(): Promise<void> {
    const { clock } = this.#parts
    const { signal } = this.#over
    let pauseMs = 0
    while (!this.#hasEnded && !signal.aborted) {
      const beganNs = clock.boottimeNs()
      if (beganNs >= this.#untilNs) {
        this.#end(LEASE_ENDED)
        return
      }
      const isRenewed = await this.#renewed(signal)
      pauseMs = isRenewed ? this.#intervalMs() : Math.min(pauseMs * 2 || FIRST_PAUSE_MS, this.#intervalMs())
      const leftMs = Number((this.#untilNs - clock.boottimeNs()) / MS) + 1
      await clock.sleep(Math.max(0, Math.min(pauseMs, leftMs)), signal).catch(() => {})
    }
  }

  /** The lease goes on until its end, without renewals. */
  close(): void {
    this.#over.abort(new AgentError('CANCELLED', 'lease: closed'))
  }

  /** Says that the machine must not run any more. */
  #end(reason: string): void {
    if (this.#hasEnded || this.#over.signal.aborted) return
    this.#hasEnded = true
    // There is no machine yet.
    if (!this.#isAcquiring) this.#parts.onEnded(reason)
  }

  #intervalMs(): number {
    return this.#ttlMs === 0n ? FIRST_ANSWER_MS : Math.floor(Number(this.#ttlMs) / RENEWALS)
  }

  /** Whether a request has brought a grant that lasts. */
  async #renewed(signal: AbortSignal): Promise<boolean> {
    const { clock, renew, log } = this.#parts
    const sentNs = clock.boottimeNs()
    this.#sentNs = sentNs
    const unwanted = new AbortController()
    try {
      const ms = this.#intervalMs()
      const late = () => new AgentError('DEADLINE_EXCEEDED', `no answer within ${ms} ms`)
      const answer = renew(nonceOf(sentNs), AbortSignal.any([signal, unwanted.signal]))
      return await this.#received(await abortable(withTimeout(clock, ms, answer, late), signal))
    } catch (error) {
      if (!signal.aborted) log.warn('lease not renewed', { error: messageOf(error) })
      return false
    } finally {
      unwanted.abort(new AgentError('CANCELLED', 'lease: asked anew'))
    }
  }

  async #received({ status, epoch, ttlMs, nonce }: RunLeaseUpdate): Promise<boolean> {
    if (status === Status.STATUS_TERMINATE) this.#end('terminated by the controller')
    if (status !== Status.STATUS_OK || this.#hasEnded) return false
    const untilNs = endOfGrant(this.#sentNs, ttlMs)
    const ignored = this.#whyIgnored({ epoch, ttlMs, nonce, untilNs })
    if (ignored !== undefined) {
      this.#parts.log.warn('lease: grant ignored', { reason: ignored })
      return false
    }
    await this.#extend(untilNs)
    this.#untilNs = untilNs
    this.#ttlMs = ttlMs
    this.#epoch = epoch
    return true
  }

  /** A machine whose end cannot be moved ends when it was to. */
  async #extend(untilNs: bigint): Promise<void> {
    const { clock, extend } = this.#parts
    const presentNs = this.#untilNs === 0n ? untilNs : this.#untilNs
    const leftMs = Math.max(0, Number((presentNs - clock.boottimeNs()) / MS))
    const late = () => new AgentError('DEADLINE_EXCEEDED', 'the end of the machine was not moved in time')
    await withTimeout(clock, leftMs, extend(untilNs), late)
  }

  #whyIgnored({
    epoch,
    ttlMs,
    nonce,
    untilNs,
  }: Pick<RunLeaseUpdate, 'epoch' | 'ttlMs' | 'nonce'> & { readonly untilNs: bigint }): string | undefined {
    if (!Buffer.from(nonce).equals(nonceOf(this.#sentNs))) return 'of another request than the last'
    if (ttlMs < 1n || ttlMs > MAX_TTL_MS) return `time of ${ttlMs} ms, want 1 to ${MAX_TTL_MS}`
    if (epoch < 1n || epoch < this.#epoch) return `epoch ${epoch}, want at least ${this.#epoch || 1n}`
    if (untilNs <= this.#parts.clock.boottimeNs()) return 'it has ended'
    return undefined
  }
}

function nonceOf(sentNs: bigint): Buffer {
  const nonce = Buffer.alloc(8)
  nonce.writeBigUInt64BE(sentNs)
  return nonce
}
