import { abortable, cancelled } from '../../base/abort.ts'
import { AgentError, messageOf } from '../../base/errors.ts'
import type { Logger } from '../../base/log.ts'
import { inStep } from '../../base/step.ts'
import type { SignalOnHangupRequest } from '../../gen/microvm/agent/v1/introspection.ts'
import type { Os } from '../../os/os.ts'
import { type Call, NO_CALLER } from '../../state/request.ts'
import type { ProcessOwners } from './owner.ts'
import type { ContainerProcess } from './process.ts'
import { checkSignal, type SignalOs, signalProcess } from './signal-process.ts'
import { forgetProcess } from './wait-process.ts'

export interface HangupContext {
  readonly os: SignalOs & Pick<Os, 'clock'>
  readonly containers: Pick<ProcessOwners, 'get'>
  readonly log: Logger
  readonly config: { readonly streamGraceMs: number }
}

/** The waiting calls of SignalOnHangup, one for each process. */
export class HangupSignals {
  readonly #waiting = new Map<ContainerProcess, () => void>()

  /**
   * SignalOnHangup: resolves when the process has ended or a later call replaces this one. When the caller hangs up, signals
   * the process, and forgets it after its end, because no other call asks for its status. A caller that was lost with its
   * device has `streamGraceMs` to call again. Throws INVALID_ARGUMENT for an
   * unknown container or signal and for a first process, NOT_FOUND for an unknown process.
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
    this.#waiting.get(process)?.()
    if (request.signal === 0) return
    const replaced = Promise.withResolvers<void>()
    let isReplaced = false
    const replace = () => {
      isReplaced = true
      replaced.resolve()
    }
    this.#waiting.set(process, replace)
    const isLast = () => this.#waiting.get(process) === replace
    try {
      const over = Promise.race([process.ended, replaced.promise])
      await inStep('exit', execId, () => abortable(over, signal))
    } catch (error) {
      if (isLast() && error === cancelled()) {
        // The error of a gRPC client's socket comes after the end of its calls.
        await new Promise(setImmediate)
        if (wasLost?.() === true) await graceAfter(on, replaced.promise)
        if (!isReplaced) {
          await signalProcess(on, { ...request, containerId: parts.record.id }, NO_CALLER)
          process.reported
            .then(() => forgetProcess(parts, process))
            .catch((failure: unknown) =>
              on.log.warn('process not forgotten', { containerId, execId, error: messageOf(failure) }),
            )
        }
      }
      throw error
    } finally {
      if (isLast()) this.#waiting.delete(process)
    }
  }
}

/** Waits for the end of the grace, unless `over` comes first. */
async function graceAfter({ os, config }: HangupContext, over: Promise<unknown>): Promise<void> {
  const stop = new AbortController()
  const elapsed = os.clock.sleep(config.streamGraceMs, stop.signal).catch(() => {})
  await Promise.race([elapsed, over])
  stop.abort()
}
