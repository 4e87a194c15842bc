import { setTimeout as delay } from 'node:timers/promises'
import { AgentError } from '../base/errors.ts'
import { HealthDefinition } from '../gen/health.ts'
import { clientFor } from '../rpc/client.ts'
import { type TtrpcClient, ttrpcClient } from '../rpc/ttrpc/client.ts'
import type { GuestLink } from './vsock/guest-link.ts'

/** The first retry comes soon and later ones less often, because retries do not make a slow boot faster. */
const FIRST_RETRY_MS = 5
const LONGEST_RETRY_MS = 100
/** A connection whose other end was lost during the boot may stay silent. */
const ATTEMPT_TIMEOUT_MS = 5_000

/**
 * Connects to the agent once it answers a health check. The daemon and QEMU close connections to a guest that does not
 * listen yet, so this retries. Rejects with the reason of `signal`, which should also fire when the guest is gone.
 */
export async function connectAgent(
  link: Pick<GuestLink, 'connect'>,
  signal: AbortSignal,
): Promise<TtrpcClient> {
  for (let waitMs = FIRST_RETRY_MS; ; waitMs = Math.min(waitMs * 2, LONGEST_RETRY_MS)) {
    signal.throwIfAborted()
    try {
      return await attempt(link, AbortSignal.any([signal, AbortSignal.timeout(ATTEMPT_TIMEOUT_MS)]))
    } catch (error) {
      signal.throwIfAborted()
      if (!isWorthAnotherTry(error)) throw error
    }
    await delay(waitMs, undefined, { signal }).catch(() => signal.throwIfAborted())
  }
}

async function attempt(link: Pick<GuestLink, 'connect'>, signal: AbortSignal): Promise<TtrpcClient> {
  const client = ttrpcClient(await link.connect(signal))
  try {
    await clientFor(HealthDefinition, client).check({}, { signal })
    return client
  } catch (error) {
    client.close()
    throw error
  }
}

function isWorthAnotherTry(error: unknown): boolean {
  if (error instanceof AgentError) return error.code === 'UNAVAILABLE' || error.errno !== undefined
  return error instanceof Error && error.name === 'TimeoutError'
}
