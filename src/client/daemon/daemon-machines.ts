import { existsSync } from 'node:fs'
import { AgentError } from '../../base/errors.ts'
import type { State } from '../../gen/microvm/instance/v1/instance.ts'
import type { DaemonClient } from './daemon-client.ts'

/** A daemon that hangs must not keep a tool from its other machines. */
const ASKING = { timeoutMs: 2000 } as const

/** Whether an instance of the daemon at `socket` runs, or has moved to another host; undefined where there is none, or no daemon. */
export async function runsInDaemon(
  socket: string,
  key: string,
  signal: AbortSignal,
): Promise<boolean | undefined> {
  return await askDaemon(socket, signal, async (calls, { RUNNING }) => {
    const state = await calls.getInstance({ key }, ASKING).then(
      (instance) => instance.state,
      (error) => {
        // The daemon passes callers of the agent on.
        if (hasMoved(error)) return RUNNING
        throw error
      },
    )
    return state === RUNNING
  })
}

function hasMoved(error: unknown): boolean {
  return error instanceof AgentError && error.reason === 'moved'
}

/** The keys of the machines that run; empty without a daemon. */
export async function runningInDaemon(socket: string, signal: AbortSignal): Promise<readonly string[]> {
  const keys = await askDaemon(socket, signal, async (calls, { RUNNING }) => {
    const { instances } = await calls.listInstances({}, ASKING)
    return instances.flatMap(({ properties, state }) =>
      state === RUNNING && properties !== undefined ? [properties.key] : [],
    )
  })
  return keys ?? []
}

/** Asks the daemon at `socket`. Resolves with undefined where none answers, or with an error. */
async function askDaemon<T>(
  socket: string,
  signal: AbortSignal,
  ask: (calls: DaemonClient['calls'], states: typeof State) => Promise<T>,
): Promise<T | undefined> {
  // Most hosts have no daemon, and loading its messages takes longer than the rest of a look-up.
  if (!existsSync(socket)) return undefined
  const [{ openDaemon }, { State }] = await Promise.all([
    import('./daemon-client.ts'),
    import('../../gen/microvm/instance/v1/instance.ts'),
  ])
  let daemon: DaemonClient | undefined
  try {
    daemon = await openDaemon(socket, signal, ASKING.timeoutMs)
    return await ask(daemon.calls, State)
  } catch (error) {
    signal.throwIfAborted()
    if (error instanceof AgentError) return undefined
    throw error
  } finally {
    daemon?.close()
  }
}
