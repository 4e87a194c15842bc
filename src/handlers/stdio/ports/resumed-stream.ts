import type { RelayLink, Streams } from '../../../os/streams/streams.ts'
import type { StreamName } from '../port-connections.ts'
import type { StoredDescriptors } from '../stored-descriptors.ts'

const NAME_BYTES = 8

const STREAM_NUMBERS = { stdin: 0, stdout: 1, stderr: 2 } as const

/** No other stream of this guest has the same name: keys have numbers that are not used again. */
export function nameOfStream(key: string, stream: StreamName): Uint8Array {
  const name = Buffer.alloc(NAME_BYTES)
  name.writeBigUInt64LE(BigInt(key.replace(/\D/g, '')) * 4n + BigInt(STREAM_NUMBERS[stream]))
  return name
}

/** The first bytes of a connection: the stream's name, and the total of the first byte that follows. */
export function openingOf(name: Uint8Array, total: bigint): Uint8Array {
  const opening = Buffer.alloc(2 * NAME_BYTES)
  opening.set(name)
  opening.writeBigUInt64LE(total, NAME_BYTES)
  return opening
}

/** Where an output is until its reader acknowledges it; stored before a byte is in it. */
export function keptOutput(
  streams: Pick<Streams, 'memoryFile' | 'openAgain'>,
  { stream, stored }: { readonly stream: StreamName; readonly stored: StoredDescriptors },
): RelayLink['kept'] {
  if (stream === 'stdin') return undefined
  const before = stored.take(`${stream}-kept`)
  const file = before ?? streams.memoryFile(`${stream}-kept`)
  if (before === undefined) stored.put(`${stream}-kept`, file)
  const sentBefore = stored.take(`${stream}-sent`)
  const sent = sentBefore ?? streams.openAgain(file)
  if (sentBefore === undefined) stored.put(`${stream}-sent`, sent)
  return { file, sent }
}
