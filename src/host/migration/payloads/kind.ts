import { BinaryReader } from '@bufbuild/protobuf/wire'
import { AgentError, messageOf } from '../../../base/errors.ts'
import type { Any } from '../../../gen/google/protobuf/any.ts'

interface Versioned {
  readonly schemaVersion: number
}

/** A kind of payload, with the version that this host writes and reads. */
export interface Kind<T extends Versioned> {
  readonly typeUrl: string
  readonly version: number
  readonly codec: {
    encode(message: T): { finish(): Uint8Array }
    decode(bytes: Uint8Array): T
  }
}

/** `part` is the package's last name, of a file in proto/state/host. */
export function kind<T extends Versioned>(part: string, version: number, codec: Kind<T>['codec']): Kind<T> {
  return { typeUrl: `type.googleapis.com/microvm.state.host.${part}.v1.Payload`, version, codec }
}

export function pack<T extends Versioned>(
  { typeUrl, version, codec }: Kind<T>,
  fields: Omit<T, 'schemaVersion'>,
): Any {
  // `Omit` takes only the version away, so this is the whole message.
  return { typeUrl, value: codec.encode({ ...fields, schemaVersion: version } as T).finish() }
}

/** Throws FAILED_PRECONDITION beginning with the field `where` for what is missing, damaged, or of another type or version. */
export function unpack<T extends Versioned>(
  { typeUrl, version, codec }: Kind<T>,
  any: Any | undefined,
  where: string,
): T {
  const refuse = (what: string) => new AgentError('FAILED_PRECONDITION', `${where}: ${what}`)
  if (any === undefined) throw refuse(`missing, want ${typeUrl}`)
  const wanted = `want ${typeUrl}, version ${version}`
  try {
    // A later version may have other fields, so its number is read alone.
    const present = any.typeUrl === typeUrl ? versionIn(any.value) : undefined
    if (present === undefined) throw refuse(`type ${JSON.stringify(any.typeUrl)}: unknown, ${wanted}`)
    if (present !== version) throw refuse(`type ${typeUrl}, version ${present}: unknown, ${wanted}`)
    return codec.decode(any.value)
  } catch (error) {
    if (error instanceof AgentError) throw error
    throw refuse(`damaged: ${messageOf(error)}`)
  }
}

/** The first field; writers leave out 0. */
function versionIn(bytes: Uint8Array): number {
  const reader = new BinaryReader(bytes)
  if (bytes.length === 0 || reader.uint32() !== 8) return 0
  return reader.uint32()
}
