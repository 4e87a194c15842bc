import { setTimeout as delay } from 'node:timers/promises'
import { AgentError, messageOf } from '../../../base/errors.ts'
import type { Logger } from '../../../base/log.ts'
import type { HypervisorID, MigrationSwitchoverRequest_VolumePlace as VolumePlace } from '../../../gen/vm.ts'
import { isSame, type MoveHost } from './move-host.ts'

interface Question {
  readonly us: HypervisorID
  /** Tells where volumes are once `us` runs the machine: none when all stay where they are. Called for each try, and may ask the controller. */
  readonly volumes?: () => Promise<readonly VolumePlace[]>
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
 * none, this tries again. A VM that it does not know is nobody's: a controller may have lost what it knew.
 */
export async function becomeAuthoritative({
  us,
  them: first,
  volumes = async () => [],
  givesUp,
  host,
  log,
  signal,
}: Question): Promise<boolean> {
  const { controller, settings } = host
  const until = performance.now() + settings.switchoverMs
  let them = first
  for (let tries = 0; ; tries++) {
    try {
      if (givesUp && tries > 0 && performance.now() > until)
        return await outcomeOfTries({ us, them, host, signal }, until)
      await controller.switchover({ us, them, volumes: [...(await volumes())] })
      return true
    } catch (error) {
      // An earlier try may have succeeded although its answer was lost. A refusal counts also after `signal`.
      const present = isDefinite(error)
        ? await authoritativeOf({ us, host }).catch(() => undefined)
        : undefined
      if (isSame(present, us)) return true
      if (present !== undefined && present.podName !== us.podName) return false
      signal.throwIfAborted()
      // An earlier run of this very instance, by a try of an earlier daemon.
      if (present !== undefined) them = present
      log.warn('controller not asked who runs the machine', { vm: us.vmName, error: messageOf(error) })
    }
    await delay(settings.retryMs, undefined, { signal })
  }
}

/**
 * Whether a try that was given up has made `us` authoritative, which a controller may carry out late. It cannot any more once the
 * source has taken a new run id, and after `lateMs`.
 */
async function outcomeOfTries(
  { us, them, host, signal }: Pick<Question, 'us' | 'them' | 'host' | 'signal'>,
  since: number,
): Promise<boolean> {
  const { lateMs, retryMs } = host.settings
  for (;;) {
    const isLate = performance.now() > since + lateMs
    const present = await authoritativeOf({ us, host })
    if (isSame(present, us)) return true
    if (isLate || !isSame(present, them)) return false
    await delay(retryMs, undefined, { signal })
  }
}

type Asked = Pick<Question, 'us'> & { readonly host: Pick<MoveHost, 'controller'> }

/** Whether `us` is authoritative; asked until the controller answers. Nothing is switched over. */
export async function awaitAuthority({
  us,
  host,
  log,
  signal,
}: Omit<Question, 'them' | 'givesUp'>): Promise<boolean> {
  for (;;) {
    try {
      return await isAuthoritative({ us, host })
    } catch (error) {
      signal.throwIfAborted()
      log.warn('controller not asked who runs the machine', { vm: us.vmName, error: messageOf(error) })
    }
    await delay(host.settings.retryMs, undefined, { signal })
  }
}

/** Rejects where the controller does not answer. */
export async function isAuthoritative({ us, host }: Asked): Promise<boolean> {
  return isSame(await authoritativeOf({ us, host }), us)
}

/** Undefined where the controller does not know the VM. */
async function authoritativeOf({ us, host }: Asked): Promise<HypervisorID | undefined> {
  const { namespace, vmName: name } = us
  const vm = await host.controller.getVm({ namespace, name }).catch((error) => {
    if (error instanceof AgentError && error.code === 'NOT_FOUND') return undefined
    throw error
  })
  return vm?.authoritative
}

function isDefinite(error: unknown): boolean {
  return error instanceof AgentError && (error.code === 'FAILED_PRECONDITION' || error.code === 'NOT_FOUND')
}
