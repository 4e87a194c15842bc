import { AgentError } from '../../base/errors.ts'
import type { Logger } from '../../base/log.ts'
import type { Clock } from '../clock.ts'
import { checkErrno } from '../errors.ts'
import type { Native } from '../native.ts'
import type { Fd, Streams } from '../streams/streams.ts'
import { ExitChannel } from './exit-channel.ts'
import type { Exits, Supervisor } from './supervisor.ts'

/**
 * Connects to vminit. `channel` is the socket that the agent was started with (`--channel FD`); without one the agent runs
 * by itself, and waits for exits and commands throw FAILED_PRECONDITION.
 */
export function connectVminit(parts: {
  readonly channel: Fd | undefined
  readonly native: Native
  readonly streams: Streams
  readonly clock: Clock
  readonly log: Logger
}): { readonly exits: Exits; readonly supervisor: Supervisor } {
  if (parts.channel === undefined) return { exits: withoutExits, supervisor: withoutSupervisor }
  checkErrno('unblock', `channel fd ${parts.channel}`, parts.native.setNonBlocking(parts.channel, true))
  const channel = new ExitChannel({ ...parts, fd: parts.channel })
  // It ends with vminit and never rejects.
  void channel.receive()
  return { exits: channel, supervisor: channel }
}

const REMEDY = 'the agent was not started by vminit, which containers need: start it as `vminit -- agent …`'

const withoutExits: Exits = {
  unavailable: REMEDY,
  watch() {
    throw new AgentError('FAILED_PRECONDITION', REMEDY)
  },
}

const withoutSupervisor: Supervisor = {
  // Never resolves without vminit.
  shutdownRequested: new Promise(() => {}),
  async powerOff() {
    throw new AgentError('FAILED_PRECONDITION', REMEDY)
  },
  async exitWith() {
    throw new AgentError('FAILED_PRECONDITION', REMEDY)
  },
  async endWithAgent() {},
}
