import { abortable, cancelled } from '../../base/abort.ts'
import { AgentError, messageOf } from '../../base/errors.ts'
import type { Logger } from '../../base/log.ts'
import { inStep } from '../../base/step.ts'
import type { SignalOnHangupRequest } from '../../gen/microvm/agent/v1/introspection.ts'
import { HangupState } from '../../gen/state/container.ts'
import type { Os } from '../../os/os.ts'
import { type Call, NO_CALLER } from '../../state/request.ts'
import type { PortLinks } from '../stdio/ports/port-links.ts'
import type { ProcessOwner, ProcessOwners } from './owner.ts'
import type { ContainerProcess } from './process.ts'
import { checkSignal, type SignalOs, signalProcess } from './signal-process.ts'
import { forgetProcess } from './wait-process.ts'

export interface HangupContext {
  readonly os: SignalOs & Pick<Os, 'clock'>
  readonly containers: Pick<ProcessOwners, 'get'>
  readonly log: Logger
  readonly ports: Pick<PortLinks, 'attached' | 'standsStill'>
  readonly config: { readonly streamGraceMs: number }
}

/** How long callers have to come back after a death of the agent, which ends their gRPC connections, or after Detach. */
const RETURN_MS = 10_000
/** The same for a caller that was lost with its device before: it may have come back while there was no agent. */
const LOST_RETURN_MS = 2_000

/** A process that was added to a container, and the call that has it. */
interface Held {
  readonly parts: ProcessOwner
  readonly execId: string
  readonly process: ContainerProcess
  /** Resolves when another call takes its place. */
  readonly replaced: Promise<void>
  isReplaced: boolean
}

/**
 * The calls of SignalOnHangup, one for each process. The record of the process tells the next agent that there is a caller,
 * and when the signal is due.
 */
export class HangupSignals {
  readonly #replace = new Map<ContainerProcess, () => void>()

  /**
   * SignalOnHangup: resolves when the process has ended or a later call replaces this one. When the caller hangs up, signals
   * the process, and forgets it after its end, because no other call asks for its status. A caller that was lost with its
   * device has `streamGraceMs` to call again, and one whose call Detach has ended as long as after a death of the agent, once
   * the streams are attached. Throws INVALID_ARGUMENT for an unknown container or signal and for a first process,
   * NOT_FOUND for an unknown process, UNAVAILABLE at Detach.
   */
  async wait(
    on: HangupContext,
    request: SignalOnHangupRequest,
    { signal, wasLost }: Pick<Call, 'signal' | 'wasLost'>,
  ): Promise<void> {
    const { containerId, execId } = request
    checkSignal(request.signal)
    const { parts } = on.containers.get(containerId, 'INVALID_ARGUMENT')
    const process = parts.processes.get(execId)
    if (process === parts.init)
      throw new AgentError('INVALID_ARGUMENT', 'exec_id: the first process, want one that was added')
    const { record } = parts
    if (request.signal === 0) {
      this.#replace.get(process)?.()
      record.saveHangup(process.key, undefined)
      return
    }
    const hangup = HangupState.fromPartial({ signal: request.signal })
    record.saveHangup(process.key, hangup)
    const held = this.#hold(parts, execId, process)
    try {
      const over = Promise.race([process.ended, held.replaced])
      await inStep('exit', execId, () => abortable(over, signal))
      if (!held.isReplaced) record.saveHangup(process.key, undefined)
    } catch (error) {
      if (!held.isReplaced && isDetached(error)) this.#expect(on, this.#hold(parts, execId, process), hangup)
      if (!held.isReplaced) await this.#left(on, held, request.signal, { error, wasLost })
      throw error
    } finally {
      this.#release(held)
    }
  }

  /** Goes on with the processes whose callers the previous agent had, or had lost. Call it before calls are served. */
  restore(on: HangupContext, containers: readonly ProcessOwner[]): void {
    for (const parts of containers) {
      for (const { key, execId, hangup } of parts.record.execs) {
        const process = parts.processes.find(execId)
        if (hangup === undefined || process?.key !== key) continue
        this.#expect(on, this.#hold(parts, execId, process), hangup)
      }
    }
  }

  /** Goes on without a call. */
  #expect(on: HangupContext, held: Held, hangup: HangupState): void {
    const { parts, execId, process } = held
    this.#goOn(on, held, hangup).catch((error: unknown) => {
      if (process.status === undefined)
        on.log.warn('process of a lost caller not signalled', {
          ...{ containerId: parts.record.id, execId, error: messageOf(error) },
        })
    })
  }

  /** The call has failed, and no other has the process. */
  async #left(
    on: HangupContext,
    held: Held,
    signal: number,
    { error, wasLost }: { readonly error: unknown; readonly wasLost: Call['wasLost'] },
  ): Promise<void> {
    const { parts, process } = held
    if (error !== cancelled()) {
      parts.record.saveHangup(process.key, undefined)
      return
    }
    // The error of a gRPC client's socket comes after the end of its calls.
    await new Promise(setImmediate)
    if (wasLost?.() === true) await this.#wait(on, held, signal, on.config.streamGraceMs)
    if (!held.isReplaced) await this.#send(on, held, signal)
  }

  async #goOn(on: HangupContext, held: Held, { signal, dueNs, sent }: HangupState): Promise<void> {
    try {
      if (sent) {
        this.#forgetAtEnd(on, held)
        return
      }
      const leftMs = Number(dueNs - on.os.clock.boottimeNs()) / 1e6
      const ms =
        dueNs === 0n ? Math.max(on.config.streamGraceMs, RETURN_MS) : Math.max(leftMs, LOST_RETURN_MS)
      await this.#wait(on, held, signal, ms)
      if (!held.isReplaced) await this.#send(on, held, signal)
    } finally {
      this.#release(held)
    }
  }

  /** Waits until the signal is due, unless a caller comes. While the streams stand still, none can. */
  async #wait(on: HangupContext, held: Held, signal: number, ms: number): Promise<void> {
    const { os, ports } = on
    const stop = new AbortController()
    const unlessReplaced = (wait: Promise<void>) => Promise.race([wait.catch(() => {}), held.replaced])
    do {
      await unlessReplaced(ports.attached(stop.signal))
      if (held.isReplaced) break
      const dueNs = os.clock.boottimeNs() + BigInt(Math.ceil(ms)) * 1_000_000n
      saveOrLog(on, held, { signal, dueNs })
      await unlessReplaced(os.clock.sleep(Math.ceil(ms), stop.signal))
    } while (ports.standsStill && !held.isReplaced)
    stop.abort()
  }

  /** A death of the agent meanwhile may send the signal twice. */
  async #send(on: HangupContext, held: Held, signal: number): Promise<void> {
    const { parts, execId } = held
    await signalProcess(on, { containerId: parts.record.id, execId, signal }, NO_CALLER)
    saveOrLog(on, held, { signal, sent: true })
    this.#forgetAtEnd(on, held)
  }

  #forgetAtEnd({ log }: HangupContext, { parts, execId, process }: Held): void {
    process.reported
      .then(() => forgetProcess(parts, process))
      .catch((failure: unknown) =>
        log.warn('process not forgotten', {
          ...{ containerId: parts.record.id, execId, error: messageOf(failure) },
        }),
      )
  }

  /** Replaces the call that has the process. */
  #hold(parts: ProcessOwner, execId: string, process: ContainerProcess): Held {
    this.#replace.get(process)?.()
    const { promise, resolve } = Promise.withResolvers<void>()
    const held = { parts, execId, process, replaced: promise, isReplaced: false }
    this.#replace.set(process, () => {
      this.#replace.delete(process)
      held.isReplaced = true
      resolve()
    })
    return held
  }

  #release({ process, isReplaced }: Held): void {
    if (!isReplaced) this.#replace.delete(process)
  }
}

/** Whether the agent has ended the call for Detach. */
function isDetached(error: unknown): boolean {
  return error instanceof AgentError && error.code === 'UNAVAILABLE'
}

/** The signal is sent also when its record cannot be written, as in a full state folder. */
function saveOrLog(
  { log }: HangupContext,
  { parts, execId, process }: Held,
  hangup: Partial<HangupState>,
): void {
  try {
    parts.record.saveHangup(process.key, HangupState.fromPartial(hangup))
  } catch (failure) {
    log.warn('hang-up not recorded', {
      ...{ containerId: parts.record.id, execId, error: messageOf(failure) },
    })
  }
}
