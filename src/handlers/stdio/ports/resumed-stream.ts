import { AgentError } from '../../../base/errors.ts'
import type { Fd, RelayLink, Streams } from '../../../os/streams/streams.ts'
import type { StreamName } from '../port-connections.ts'
import type { StoredDescriptors } from '../stored-descriptors.ts'

export const NAME_BYTES = 8
/** Of a connection: the name of its stream and a total. */
export const OPENING_BYTES = 2 * NAME_BYTES

const STREAM_NUMBERS = { stdin: 0, stdout: 1, stderr: 2 } as const

/** No other stream of this guest has the same name: keys have numbers that are not used again. */
export function nameOfStream(key: string, stream: StreamName): Uint8Array {
  const name = Buffer.alloc(NAME_BYTES)
  name.writeBigUInt64LE(BigInt(key.replace(/\D/g, '')) * 4n + BigInt(STREAM_NUMBERS[stream]))
  return name
}

/** Opens a connection with the stream's name, and the total of the first byte that follows. */
export function greet(
  streams: Pick<Streams, 'tryWrite'>,
  connection: Fd,
  name: Uint8Array,
  total: bigint,
): void {
  const opening = Buffer.alloc(OPENING_BYTES)
  opening.set(name)
  opening.writeBigUInt64LE(total, NAME_BYTES)
  if (streams.tryWrite(connection, opening) < opening.length)
    throw new AgentError('INTERNAL', 'the connection takes no bytes')
}

/**
 * Takes the opening of a host that has dialled, which has come as a whole: before the guest's own, it sends nothing
 * else. Returns the total of an input, else 0; that of an output is left to its relay.
 */
export function takeOpening(streams: Pick<Streams, 'tryRead'>, connection: Fd, stream: StreamName): bigint {
  const opening = streams.tryRead(connection, stream === 'stdin' ? OPENING_BYTES : NAME_BYTES)
  return opening?.length === OPENING_BYTES ? opening.readBigUInt64LE(NAME_BYTES) : 0n
}

/** The most pages of an output that its reader has not acknowledged (native/addon/relay/kept.h). */
const KEPT_BYTES = 256 * 1024

/** Where an output is until its reader acknowledges it; stored before a byte is in it. */
export function keptOutput(
  streams: Pick<Streams, 'wholePipe' | 'growPipe'>,
  { stream, stored }: { readonly stream: StreamName; readonly stored: StoredDescriptors },
): RelayLink['kept'] {
  if (stream === 'stdin') return undefined
  const pipeOf = (name: `${'stdout' | 'stderr'}-${'kept' | 'sent'}`) => {
    const before = stored.take(name)
    if (before !== undefined) return before
    const pipe = streams.wholePipe()
    streams.growPipe(pipe, KEPT_BYTES)
    stored.put(name, pipe)
    return pipe
  }
  return { pipe: pipeOf(`${stream}-kept`), sent: pipeOf(`${stream}-sent`) }
}
