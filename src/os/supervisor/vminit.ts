import { closeSync, readFileSync } from 'node:fs'
import { AgentError } from '../../base/errors.ts'
import type { Logger } from '../../base/log.ts'
import type { Clock } from '../clock.ts'
import { checkErrno } from '../errors.ts'
import type { Files } from '../files/files.ts'
import type { Native } from '../native.ts'
import type { Fd, Streams } from '../streams/streams.ts'
import { ChannelWriter } from './channel-writer.ts'
import { VminitStore } from './descriptor-store.ts'
import { ExitChannel } from './exit-channel.ts'
import { VminitFreezer } from './freezer.ts'
import type { DescriptorStore, Exits, Freezer, Supervisor } from './supervisor.ts'

export interface VminitChannel {
  /** The socket to vminit (`--channel FD`). */
  readonly fd: Fd
  /** A file with a line `NAME FD` for each stored descriptor (`--stored-list FD`). */
  readonly storedList: Fd | undefined
}

/** Throws INTERNAL for an invalid list of descriptors. */
export function connectVminit(parts: {
  readonly channel: VminitChannel
  readonly native: Native
  readonly streams: Streams
  readonly files: Files
  readonly clock: Clock
  readonly log: Logger
}): {
  readonly exits: Exits
  readonly supervisor: Supervisor
  readonly descriptors: DescriptorStore
  readonly freezer: Freezer
} {
  const { native, streams, log } = parts
  const { fd, storedList } = parts.channel
  checkErrno('unblock', `channel fd ${fd}`, native.setNonBlocking(fd, true))
  const writer = new ChannelWriter(native, streams, fd)
  const inherited = storedList === undefined ? new Map<string, Fd>() : readStoredList(storedList)
  const descriptors = new VminitStore({ writer, inherited, log })
  const freezer = new VminitFreezer({ native, writer, mountOf })
  const channel = new ExitChannel({ ...parts, fd, writer, descriptors, freezer })
  // It ends with vminit and never rejects.
  void channel.receive()
  return { exits: channel, supervisor: channel, descriptors, freezer }
}

function mountOf(fd: Fd): number {
  return Number(/^mnt_id:\s*(\d+)$/m.exec(readFileSync(`/proc/self/fdinfo/${fd}`, 'utf8'))?.[1])
}

function readStoredList(list: Fd): Map<string, Fd> {
  const lines = readFileSync(list, 'utf8').split('\n').slice(0, -1)
  closeSync(list)
  return new Map(lines.map(storedDescriptor))
}

function storedDescriptor(line: string): [string, Fd] {
  const [, name, fd] = /^([a-z\d-]+) (\d{1,9})$/.exec(line) ?? []
  if (name === undefined)
    throw new AgentError('INTERNAL', `list of stored descriptors: '${line}', want NAME FD`)
  return [name, Number(fd)]
}
