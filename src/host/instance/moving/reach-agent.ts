import { AgentError, messageOf } from '../../../base/errors.ts'
import type { GrpcConnection } from '../../../client/connection/grpc-connection.ts'
import { agentStream } from '../../../client/daemon/connect-machine.ts'
import type { Moved } from '../../../gen/microvm/instance/v1/instance.ts'
import { dialAgent } from '../connect-agent.ts'
import type { MachineInstance } from '../instance.ts'
import type { PassedOn } from '../instances.ts'
import { joined, Moving } from '../streams.ts'
import { MOST_HOSTS, MovedAway } from './moved-away.ts'
import { isOnItsWay } from './undecided.ts'

interface Reaching {
  readonly key: string
  readonly input: AsyncIterable<Uint8Array>
  readonly signal: AbortSignal
  /** Of a caller that another host has passed on. */
  readonly passed: PassedOn | undefined
  /** The instance that the caller may see. Rejects with {@link MovedAway} for one whose machine runs elsewhere. */
  readonly find: () => Promise<MachineInstance>
  /** Connects to the host that has the machine; undefined where no other hosts are known. */
  readonly dial: ((moved: Moved, signal: AbortSignal) => Promise<GrpcConnection>) | undefined
}

/** Bytes to and from the agent of a machine that is here, or has moved away from here. */
export async function* reachAgent(reaching: Reaching): AsyncGenerator<Uint8Array> {
  const { find, input, key, passed, signal } = reaching
  const found = await find().catch((error) => {
    if (error instanceof MovedAway) return error
    throw error
  })
  if (found instanceof MovedAway) {
    checkPassed(key, passed, found.cameFrom)
    yield* joined(await passOn(found, reaching), input, signal)
    return
  }
  checkPassed(key, passed, found.record.cameFrom)
  found.machine()
  if (isMoving(found)) throw new Moving(key, Promise.resolve(undefined))
  const during = found.duringBoot(signal)
  for await (const data of joined(await dialAgent(found, during), input, during)) {
    // No firmware answers, but a boot that is over may have.
    if (!during.aborted) found.resetMs = -Infinity
    yield data
  }
}

/** A host of the CA that has not had the machine has no caller for it. */
function checkPassed(key: string, passed: PassedOn | undefined, cameFrom: readonly string[]): void {
  if (passed === undefined || cameFrom.includes(passed.host)) return
  throw new AgentError(
    'PERMISSION_DENIED',
    `instance ${key}: its machine has not come from host ${passed.host}`,
  )
}

/** Whether the agent cannot be reached because of a move, which ends: also while the guest that has come is told of it. */
function isMoving({ recorded }: MachineInstance): boolean {
  const { steps, timeline } = recorded
  const isToldOfIt = timeline?.kind === 'arrival' && steps.some(({ step }) => step === 'repair')
  const isLeaving = timeline?.kind === 'move' && timeline.since.detachedMs > 0
  return isLeaving || isOnItsWay({ recorded }) || isToldOfIt
}

async function passOn(away: MovedAway, { dial, key, passed, signal }: Reaching) {
  const { hosts = 0 } = passed ?? {}
  if (hosts >= MOST_HOSTS)
    throw new AgentError(
      'FAILED_PRECONDITION',
      `instance ${key}: ${MOST_HOSTS} hosts have passed the caller on`,
    )
  if (dial === undefined) throw away
  const connection = await dial(away.moved, signal).catch((error) => {
    signal.throwIfAborted()
    const code = error instanceof AgentError ? error.code : 'UNAVAILABLE'
    throw new AgentError(code, `${away.message}: ${messageOf(error)}`, { cause: error })
  })
  return await agentStream(connection, key, { hosts: hosts + 1, tenant: away.tenant })
}
