import { freemem } from 'node:os'
import { setTimeout as delay } from 'node:timers/promises'
import { messageOf } from '../../../base/errors.ts'
import type { Logger } from '../../../base/log.ts'
import { type Host, RegisterHostRequest } from '../../../gen/microvm/controller/v1/controller.ts'
import type { ControllerClient } from '../../controller/client.ts'

/** After a failure, and at most between two calls. */
const RETRY_MS = 2000
const LONGEST_MS = 60_000

/** Says to the controllers that this host is there, again and again until the signal fires. */
export async function registerHost(
  client: Pick<ControllerClient, 'service'>,
  {
    describe,
    changed,
    log,
    signal,
  }: {
    readonly describe: () => Promise<Omit<Host, 'memoryMib'>>
    /** Resolves when there is something else to say. */
    readonly changed: () => Promise<void>
    readonly log: Pick<Logger, 'warn'>
    readonly signal: AbortSignal
  },
): Promise<void> {
  while (!signal.aborted) {
    let pauseMs = RETRY_MS
    const other = changed()
    try {
      const host = { ...(await describe()), memoryMib: BigInt(Math.floor(freemem() / 2 ** 20)) }
      const { ttlMs } = await client.service.registerHost(RegisterHostRequest.fromPartial({ host }), {
        signal,
      })
      pauseMs = Math.min(LONGEST_MS, Math.max(100, Math.floor(Number(ttlMs) / 3)))
    } catch (error) {
      if (!signal.aborted) log.warn('host not registered', { error: messageOf(error) })
    }
    const over = new AbortController()
    const pause = delay(pauseMs, undefined, { signal: AbortSignal.any([signal, over.signal]) })
    await Promise.race([pause.catch(() => {}), other])
    over.abort()
  }
}
