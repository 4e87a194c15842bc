import { AgentError } from '../../base/errors.ts'
import type { Logger } from '../../base/log.ts'
import type { Clock } from '../clock.ts'
import { checkErrno } from '../errors.ts'
import type { Native } from '../native.ts'
import type { Fd, Streams } from '../streams/streams.ts'
import { encodeStore } from './channel-record.ts'
import { ExitChannel } from './exit-channel.ts'
import type { DescriptorStore, Exits, Supervisor } from './supervisor.ts'

/** What vminit gives the agent that it starts. */
export interface VminitChannel {
  /** The socket to vminit (`--channel FD`). */
  readonly fd: Fd
  /** The descriptors that agents before this one have stored, by name (`--stored NAME=FD`). */
  readonly stored: ReadonlyMap<string, Fd>
}

/**
 * Connects to vminit. Without a channel the agent runs by itself: waits for exits and commands throw FAILED_PRECONDITION,
 * and nothing is stored.
 */
export function connectVminit(parts: {
  readonly channel: VminitChannel | undefined
  readonly native: Native
  readonly streams: Streams
  readonly clock: Clock
  readonly log: Logger
}): { readonly exits: Exits; readonly supervisor: Supervisor; readonly descriptors: DescriptorStore } {
  if (parts.channel === undefined) {
    return { exits: withoutExits, supervisor: withoutSupervisor, descriptors: withoutStore }
  }
  const { fd, stored } = parts.channel
  checkErrno('unblock', `channel fd ${fd}`, parts.native.setNonBlocking(fd, true))
  const channel = new ExitChannel({ ...parts, fd })
  // It ends with vminit and never rejects.
  void channel.receive()
  return { exits: channel, supervisor: channel, descriptors: descriptorStore(parts.native, fd, stored) }
}

/** The send is not queued behind others: the channel holds thousands of commands, and an agent sends a handful. */
function descriptorStore(native: Native, channel: Fd, inherited: ReadonlyMap<string, Fd>): DescriptorStore {
  const stored = new Map(inherited)
  return {
    take: (name) => {
      const fd = stored.get(name)
      stored.delete(name)
      return fd
    },
    names: () => [...stored.keys()],
    store: (name, fd) => {
      checkErrno('store', `descriptor ${name} in vminit`, native.sendFd(channel, encodeStore(name), fd))
    },
  }
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

/** The store of a program that vminit did not start: it keeps nothing. */
export const withoutStore: DescriptorStore = { take: () => undefined, names: () => [], store: () => {} }
