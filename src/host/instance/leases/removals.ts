import { setTimeout as delay } from 'node:timers/promises'
import { AgentError, messageOf } from '../../../base/errors.ts'
import type { Logger } from '../../../base/log.ts'
import { HypervisorID } from '../../../gen/vm.ts'
import type { Change, Registry } from '../registry/registry.ts'
import type { LeaseController } from './machine-lease.ts'

/** Between two tries; the pause doubles. */
const PAUSE_MS = { first: 1000, longest: 600_000 } as const
/** In the registry's table of settings. */
const ROWS = 'removal/'

/** Another try has the same answer. */
const REFUSALS: readonly AgentError['code'][] = ['NOT_FOUND', 'INVALID_ARGUMENT', 'PERMISSION_DENIED']

interface RemovalsHost {
  readonly controller: Pick<LeaseController, 'removeVm'>
  readonly registry: Pick<Registry, 'commit' | 'load'>
  readonly log: Pick<Logger, 'warn' | 'error'>
}

/** VMs whose instances were removed here, until a controller has been told of it. The registry has them for the next daemon. */
export class Removals {
  readonly #host: RemovalsHost
  readonly #closed = new AbortController()

  constructor(host: RemovalsHost) {
    this.#host = host
  }

  row(us: HypervisorID): Change {
    return { table: 'settings', key: keyOf(us), payload: HypervisorID.encode(us).finish() }
  }

  /** Tells of those that an earlier daemon has not. Never rejects. */
  async goOn(): Promise<void> {
    const { log, registry } = this.#host
    try {
      const rows = await registry.load('settings')
      for (const [key, row] of rows) if (key.startsWith(ROWS)) void this.#try(key, HypervisorID.decode(row))
    } catch (error) {
      log.error('removals not read', { error: messageOf(error) })
    }
  }

  /** Tells a controller, again and again until one knows of it or refuses. Never rejects. */
  async tell(us: HypervisorID): Promise<void> {
    await this.#commit([this.row(us)])
    await this.#try(keyOf(us), us)
  }

  close(): void {
    this.#closed.abort(new AgentError('CANCELLED', 'the daemon stops'))
  }

  async #try(key: string, us: HypervisorID): Promise<void> {
    const { controller, log } = this.#host
    const { signal } = this.#closed
    for (let pauseMs: number = PAUSE_MS.first; !signal.aborted; ) {
      try {
        await controller.removeVm(us)
        break
      } catch (error) {
        // It has moved away.
        if (error instanceof AgentError && error.code === 'FAILED_PRECONDITION') break
        log.warn('controller not told of the removal', { vm: us.vmName, error: messageOf(error) })
        if (error instanceof AgentError && REFUSALS.includes(error.code)) break
      }
      await delay(pauseMs, undefined, { ref: false, signal }).catch(() => {})
      pauseMs = Math.min(pauseMs * 2, PAUSE_MS.longest)
    }
    if (!signal.aborted) await this.#commit([{ table: 'settings', key, payload: undefined }])
  }

  async #commit(changes: readonly Change[]): Promise<void> {
    await this.#host.registry.commit(changes, { frees: true }).catch((error) => {
      if (!this.#closed.signal.aborted)
        this.#host.log.warn('removal not recorded', { error: messageOf(error) })
    })
  }
}

function keyOf({ namespace, podName, runId, vmName }: HypervisorID): string {
  return `${ROWS}${namespace}/${vmName}/${podName}/${runId}`
}
