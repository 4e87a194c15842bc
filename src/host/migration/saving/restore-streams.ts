import { once } from 'node:events'
import { connect } from 'node:net'
import { openSocketOf } from '../../instance/connect-agent.ts'
import { answer } from '../../instance/holder/ask-holder.ts'
import type { MachineInstance } from '../../instance/instance.ts'
import { guestSocket } from '../../instance/machine/daemon-steps.ts'
import { listenAgain } from '../../instance/streams.ts'
import type { SavedStream } from '../manifest.ts'

/** Listens on the ports of a machine that has come, whose rings are there, unless an earlier daemon has done it. */
export async function restoreStreams(
  instance: MachineInstance,
  streams: readonly SavedStream[],
): Promise<void> {
  const { context } = instance
  for (const { isLive: _, ...stream } of streams)
    instance.streams.set(stream.port, { ...stream, instance: instance.key })
  const rings = await answer(context, context.holder?.rings() ?? Promise.resolve([]))
  for (const { port, isLive } of streams) {
    const ring = rings.find(({ number }) => number === port)
    if (ring === undefined) await listenAgain(instance, port)
    if (!isLive && ring?.isClosed !== true)
      await endStream(instance, `${guestSocket(context.folder)}_${port}`)
  }
}

/** A stream that had ended has all its bytes, and ends again. */
async function endStream({ record: { uid } }: MachineInstance, path: string): Promise<void> {
  await using file = uid === 0 ? undefined : await openSocketOf(uid, path)
  const socket = connect(file === undefined ? path : `/proc/self/fd/${file.fd}`)
  await once(socket, 'connect')
  socket.destroy()
}
