import { setTimeout as delay } from 'node:timers/promises'
import { AgentError, messageOf } from '../../../base/errors.ts'
import type { Logger } from '../../../base/log.ts'
import type { HypervisorID } from '../../../gen/vm.ts'
import { isSame, type MoveHost } from './move-host.ts'

interface Question {
  readonly us: HypervisorID
  /** Who was authoritative before. */
  readonly them: HypervisorID
  /** A target stops trying after `switchoverMs`: from then on it only waits to learn what has become of its tries. */
  readonly givesUp: boolean
  readonly host: Pick<MoveHost, 'controller' | 'settings'>
  readonly log: Pick<Logger, 'warn'>
  /** Ends the tries. */
  readonly signal: AbortSignal
}

/**
 * Makes `us` authoritative in place of `them`, and resolves with whether it is. An answer of the controller decides; while it gives
 * none, this tries again.
 */
export async function becomeAuthoritative({
  us,
  them,
  givesUp,
  host,
  log,
  signal,
}: Question): Promise<boolean> {
  const { controller, settings } = host
  const until = performance.now() + settings.switchoverMs
  for (let tries = 0; ; tries++) {
    try {
      if (givesUp && tries > 0 && performance.now() > until) return await isAuthoritative({ us, host })
      await controller.switchover({ us, them, volumes: [] })
      return true
    } catch (error) {
      signal.throwIfAborted()
      if (isDefinite(error)) {
        // An earlier try may have succeeded although its answer was lost.
        const isOurs = await isAuthoritative({ us, host }).catch(() => undefined)
        if (isOurs !== undefined) return isOurs
      }
      log.warn('controller not asked who runs the machine', { vm: us.vmName, error: messageOf(error) })
    }
    await delay(settings.retryMs, undefined, { signal })
  }
}

/** Rejects where the controller does not answer. */
async function isAuthoritative({
  us,
  host,
}: Pick<Question, 'us'> & { readonly host: Pick<MoveHost, 'controller'> }): Promise<boolean> {
  const { namespace, vmName: name } = us
  const vm = await host.controller.getVm({ namespace, name }).catch((error) => {
    if (error instanceof AgentError && error.code === 'NOT_FOUND') return undefined
    throw error
  })
  return isSame(vm?.authoritative, us)
}

function isDefinite(error: unknown): boolean {
  return error instanceof AgentError && (error.code === 'FAILED_PRECONDITION' || error.code === 'NOT_FOUND')
}
