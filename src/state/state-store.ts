import { crc32 } from 'node:zlib'
import { AgentError, messageOf } from '../base/errors.ts'
import { Any } from '../gen/google/protobuf/any.ts'
import { ContainerPayload, ExecPayload, SpecPayload } from '../gen/state/container.ts'
import { CopyPayload } from '../gen/state/copy.ts'
import { Envelope } from '../gen/state/envelope.ts'
import { EventsPayload } from '../gen/state/events.ts'
import { GuestPayload } from '../gen/state/guest.ts'
import { NetworkPayload } from '../gen/state/network.ts'
import { OomPayload } from '../gen/state/oom.ts'
import { PolicyPayload } from '../gen/state/policy.ts'
import { RequestPayload } from '../gen/state/request.ts'
import { SandboxPayload } from '../gen/state/sandbox.ts'
import { StoragePayload } from '../gen/state/storage.ts'
import type { StateFiles } from '../os/files/state-files.ts'

interface Payload {
  readonly schemaVersion: number
}

interface PayloadCodec<T> {
  encode(message: T): { finish(): Uint8Array }
  decode(bytes: Uint8Array): T
}

/** One kind of payload: its message and the version that this agent writes and reads. */
export interface PayloadKind<T> {
  /** Full name of the message. */
  readonly name: string
  readonly version: number
  readonly codec: PayloadCodec<T>
}

const PACKAGE = 'microvm.state.v1'
/** As `google.protobuf.Any` wants it. */
const TYPE_PREFIX = 'type.googleapis.com/'

/** The parts of the state, each with a version of its own (proto/state). */
export const KINDS = {
  container: kind('ContainerPayload', 5, ContainerPayload),
  exec: kind('ExecPayload', 2, ExecPayload),
  spec: kind('SpecPayload', 1, SpecPayload),
  sandbox: kind('SandboxPayload', 1, SandboxPayload),
  storage: kind('StoragePayload', 1, StoragePayload),
  oom: kind('OomPayload', 3, OomPayload),
  request: kind('RequestPayload', 2, RequestPayload),
  copy: kind('CopyPayload', 2, CopyPayload),
  policy: kind('PolicyPayload', 1, PolicyPayload),
  events: kind('EventsPayload', 1, EventsPayload),
  network: kind('NetworkPayload', 1, NetworkPayload),
  guest: kind('GuestPayload', 1, GuestPayload),
} as const

function kind<T extends Payload>(name: string, version: number, codec: PayloadCodec<T>): PayloadKind<T> {
  return { name: `${PACKAGE}.${name}`, version, codec }
}

/** A payload that this agent cannot read: damaged, or written by another version. */
export class UnreadableState extends AgentError {}

/**
 * What only the values of requests, and payloads that replace others, may take of the room: if they have at most `payloadBytes`, or have
 * grown by at most `growthBytes`.
 */
const RESERVE = { bytes: 24 * 1024 * 1024, files: 8192, payloadBytes: 64 * 1024, growthBytes: 4096 }

/**
 * The state that outlives the agent: payloads by name. A write is complete when it returns, whatever becomes of the agent.
 * What is new leaves a reserve, so that what was begun can be written to its end: its next states, and its outcome.
 */
export class StateStore {
  readonly #files: StateFiles

  constructor(files: StateFiles) {
    this.#files = files
  }

  /**
   * Makes or replaces the payload `name`; its version is set here. Throws RESOURCE_EXHAUSTED when there is no room beside the
   * reserve, or the kernel's error, and then keeps the old one.
   */
  write<T extends Payload>(kind: PayloadKind<T>, name: string, payload: Omit<T, 'schemaVersion'>): void {
    const bytes = encodeEnvelope(kind, payload)
    if (!this.#mayTakeReserve(kind, name, bytes)) this.#leaveReserve(name, bytes)
    this.#files.write(name, bytes)
  }

  #mayTakeReserve({ name: kind }: { readonly name: string }, name: string, bytes: Uint8Array): boolean {
    const isShort = bytes.length <= RESERVE.payloadBytes
    if (kind === KINDS.request.name) return isShort
    const replacedBytes = this.#files.size(name)
    return replacedBytes !== undefined && (isShort || bytes.length <= replacedBytes + RESERVE.growthBytes)
  }

  #leaveReserve(name: string, bytes: Uint8Array): void {
    const { bytes: freeBytes, files } = this.#files.room()
    // Its folders may be new too.
    const [wantedBytes, wantedFiles] = [RESERVE.bytes + bytes.length, RESERVE.files + name.split('/').length]
    if (freeBytes >= wantedBytes && files >= wantedFiles) return
    const has = `${freeBytes} bytes and ${files} files of room`
    throw new AgentError(
      'RESOURCE_EXHAUSTED',
      `state ${name}: ${has}, want ${wantedBytes} bytes and ${wantedFiles} files`,
    )
  }

  /** undefined when there is none. Throws {@link UnreadableState} for one that this agent cannot read. */
  read<T extends Payload>(kind: PayloadKind<T>, name: string): T | undefined {
    const bytes = this.#files.read(name)
    if (bytes === undefined) return undefined
    try {
      return decodeEnvelope(kind, bytes)
    } catch (error) {
      throw new UnreadableState('INTERNAL', `state ${name}: ${messageOf(error)}`, { cause: error })
    }
  }

  /** As {@link read}, but throws {@link UnreadableState} also when there is none. */
  require<T extends Payload>(kind: PayloadKind<T>, name: string): T {
    const payload = this.read(kind, name)
    if (payload === undefined) throw new UnreadableState('INTERNAL', `state ${name}: missing`)
    return payload
  }

  /** Removes a payload, or all of a folder. */
  remove(name: string): void {
    this.#files.remove(name)
  }

  /** Names in a folder, sorted. */
  list(folder: string): readonly string[] {
    return this.#files.list(folder)
  }
}

/** How an envelope names the message of a kind. */
export function typeUrlOf({ name }: { readonly name: string }): string {
  return `${TYPE_PREFIX}${name}`
}

/** The bytes of a state file. */
export function encodeEnvelope<T extends Payload>(
  kind: PayloadKind<T>,
  payload: Omit<T, 'schemaVersion'>,
): Uint8Array {
  // The version is the one field that Omit takes out, so the sum is the whole message.
  const value = kind.codec.encode({ ...payload, schemaVersion: kind.version } as T).finish()
  return sealedEnvelope({ typeUrl: typeUrlOf(kind), value })
}

/** A state file with any payload. */
export function sealedEnvelope(payload: Any): Uint8Array {
  return Envelope.encode({ payload, checksum: checksumOf(payload) }).finish()
}

function checksumOf({ typeUrl, value }: Any): number {
  return crc32(value, crc32(typeUrl))
}

/** The payload of a state file. Throws an error that says what is wrong with the bytes. */
export function decodeEnvelope<T extends Payload>(
  kind: Pick<PayloadKind<T>, 'name' | 'version'> & { readonly codec: Pick<PayloadCodec<T>, 'decode'> },
  bytes: Uint8Array,
): T {
  const { payload: any = Any.create(), checksum } = Envelope.decode(bytes)
  const { typeUrl, value } = any
  if (typeUrl !== typeUrlOf(kind)) throw new Error(`is a '${typeUrl}', want ${kind.name}`)
  if (checksum !== checksumOf(any)) throw new Error('is damaged: its checksum differs')
  const payload = kind.codec.decode(value)
  if (payload.schemaVersion === kind.version) return payload
  throw new Error(`has version ${payload.schemaVersion}, want ${kind.version}`)
}
