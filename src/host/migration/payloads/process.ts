import type { Any } from '../../../gen/google/protobuf/any.ts'
import type { Container, Process } from '../../../gen/microvm/agent/v1/introspection.ts'
import { type Exit, Payload, Stage } from '../../../gen/state/host/process.ts'
import type { GuestFacts } from './ask-guest.ts'
import { kind, pack, unpack } from './kind.ts'

const KIND = kind('process', 1, Payload)

export function saveProcess(
  { sandbox, exits, streams }: GuestFacts,
  { containerId, state, bundle }: Container,
  { execId, pid, hasTerminal, exitStatus }: Process,
): Any {
  const isOwn = (other: { readonly containerId: string; readonly execId: string }) =>
    other.containerId === containerId && other.execId === execId
  const event = exits.find((exit) => isOwn(exit) && exit.pid === pid)
  const isWaiting = execId === '' && (state === 'created' || state === 'starting')
  const stage = isWaiting ? Stage.CREATED : Stage.RUNNING
  const exit: Exit | undefined =
    event === undefined
      ? exitStatus === undefined
        ? undefined
        : { ...NO_EVENT, status: exitStatus }
      : {
          ...{ status: event.status, sequence: event.sequence, signal: event.signal },
          ...{ oomKilled: event.oomKilled, startedMs: event.startedAtMs, endedMs: event.endedAtMs },
        }
  const ports = streams.filter(isOwn).map(({ stream, port, name, total, acknowledged }) => {
    return { stream, port, name, total, acknowledged }
  })
  return pack(KIND, {
    stage: exit === undefined ? stage : Stage.EXITED,
    ...{ pid, bundlePath: bundle, hasTerminal, exit, ioRetryMs: sandbox.streamGraceMs, ports },
  })
}

/** An exit that the agent has forgotten all but the status of. */
const NO_EVENT = { sequence: 0n, signal: 0, oomKilled: false, startedMs: 0n, endedMs: 0n } as const

export function restoreProcess(any: Any | undefined, where: string): Payload {
  return unpack(KIND, any, where)
}
