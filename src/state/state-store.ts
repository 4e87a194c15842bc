import { crc32 } from '../base/crc32.ts'
import { AgentError, messageOf } from '../base/errors.ts'
import { Any } from '../gen/google/protobuf/any.ts'
import { ContainerPayload, ExecPayload, SpecPayload } from '../gen/state/container.ts'
import { CopyPayload } from '../gen/state/copy.ts'
import { Envelope } from '../gen/state/envelope.ts'
import { EventsPayload } from '../gen/state/events.ts'
import { GuestPayload } from '../gen/state/guest.ts'
import { LifecyclePayload } from '../gen/state/lifecycle.ts'
import { NamesPayload } from '../gen/state/names.ts'
import { NetworkPayload } from '../gen/state/network.ts'
import { OomPayload } from '../gen/state/oom.ts'
import { OutcomePayload } from '../gen/state/outcome.ts'
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

/** A kind of payload, with the version that this agent writes and reads. */
export interface PayloadKind<T> {
  readonly name: string
  readonly version: number
  readonly codec: PayloadCodec<T>
}

const PACKAGE = 'microvm.state.v1'
const TYPE_PREFIX = 'type.googleapis.com/'

/** The parts of the state (proto/state). Each has its own version. */
export const KINDS = {
  container: kind('ContainerPayload', 6, ContainerPayload),
  exec: kind('ExecPayload', 2, ExecPayload),
  spec: kind('SpecPayload', 1, SpecPayload),
  sandbox: kind('SandboxPayload', 1, SandboxPayload),
  storage: kind('StoragePayload', 1, StoragePayload),
  oom: kind('OomPayload', 3, OomPayload),
  request: kind('RequestPayload', 2, RequestPayload),
  outcome: kind('OutcomePayload', 1, OutcomePayload),
  copy: kind('CopyPayload', 2, CopyPayload),
  policy: kind('PolicyPayload', 1, PolicyPayload),
  events: kind('EventsPayload', 1, EventsPayload),
  names: kind('NamesPayload', 1, NamesPayload),
  network: kind('NetworkPayload', 1, NetworkPayload),
  guest: kind('GuestPayload', 1, GuestPayload),
  lifecycle: kind('LifecyclePayload', 1, LifecyclePayload),
} as const

function kind<T extends Payload>(name: string, version: number, codec: PayloadCodec<T>): PayloadKind<T> {
  return { name: `${PACKAGE}.${name}`, version, codec }
}

/** A payload is damaged, of another kind or version, or missing although another record needs it. */
export class UnreadableState extends AgentError {}

/**
 * Room that is kept for work in progress. Records of requests and outcomes, and replacements of at most `payloadBytes` may use it, and longer
 * replacements that grow by at most `growthBytes`.
 */
const RESERVE = { bytes: 24 * 1024 * 1024, files: 8192, payloadBytes: 64 * 1024, growthBytes: 4096 }

/**
 * The state that outlives the agent: payloads by name. A write is complete when it returns. New payloads leave a reserve,
 * so that work in progress can always record its next states and its outcome.
 */
export class StateStore {
  readonly #files: StateFiles
  /** Of the payloads that this agent has written. */
  readonly #sizes = new Map<string, number>()

  constructor(files: StateFiles) {
    this.#files = files
  }

  /** Throws RESOURCE_EXHAUSTED when it may not use the reserve, or the kernel's error; the old payload then stays. */
  write<T extends Payload>(kind: PayloadKind<T>, name: string, payload: Omit<T, 'schemaVersion'>): void {
    const bytes = encodeEnvelope(kind, payload)
    if (!mayTakeReserve(kind, bytes, this.#sizes.get(name))) this.#leaveReserve(kind, name, bytes)
    this.#files.write(name, bytes)
    this.#sizes.set(name, bytes.length)
  }

  #leaveReserve(kind: { readonly name: string }, name: string, bytes: Uint8Array): void {
    const { bytes: freeBytes, files } = this.#files.room()
    // The folders may be new too.
    const [wantedBytes, wantedFiles] = [RESERVE.bytes + bytes.length, RESERVE.files + name.split('/').length]
    if (freeBytes >= wantedBytes && files >= wantedFiles) return
    // It may replace one of the previous agent.
    if (mayTakeReserve(kind, bytes, this.#files.size(name))) return
    const has = `${freeBytes} bytes and ${files} files of room`
    throw new AgentError(
      'RESOURCE_EXHAUSTED',
      `state ${name}: ${has}, want ${wantedBytes} bytes and ${wantedFiles} files`,
    )
  }

  /** Throws {@link UnreadableState}. */
  read<T extends Payload>(kind: PayloadKind<T>, name: string): T | undefined {
    const bytes = this.#files.read(name)
    if (bytes === undefined) return undefined
    try {
      return decodeEnvelope(kind, bytes)
    } catch (error) {
      throw new UnreadableState('INTERNAL', `state ${name}: ${messageOf(error)}`, { cause: error })
    }
  }

  /** Like {@link read}, but throws {@link UnreadableState} also for a missing payload. */
  require<T extends Payload>(kind: PayloadKind<T>, name: string): T {
    const payload = this.read(kind, name)
    if (payload === undefined) throw new UnreadableState('INTERNAL', `state ${name}: missing`)
    return payload
  }

  /** Removes a payload or a whole folder. */
  remove(name: string): void {
    if (!this.#sizes.delete(name)) this.#forgetIn(name)
    this.#files.remove(name)
  }

  #forgetIn(folder: string): void {
    for (const name of this.#sizes.keys()) {
      if (folder === '' || name.startsWith(`${folder}/`)) this.#sizes.delete(name)
    }
  }

  /** Names in a folder, sorted. */
  list(folder: string): readonly string[] {
    return this.#files.list(folder)
  }
}

function mayTakeReserve(
  { name: kind }: { readonly name: string },
  bytes: Uint8Array,
  replacedBytes: number | undefined,
): boolean {
  const isShort = bytes.length <= RESERVE.payloadBytes
  if (kind === KINDS.request.name || kind === KINDS.outcome.name) return isShort
  return replacedBytes !== undefined && (isShort || bytes.length <= replacedBytes + RESERVE.growthBytes)
}

export function typeUrlOf({ name }: { readonly name: string }): string {
  return `${TYPE_PREFIX}${name}`
}

export function encodeEnvelope<T extends Payload>(
  kind: PayloadKind<T>,
  payload: Omit<T, 'schemaVersion'>,
): Uint8Array {
  // `Omit` takes only the version away, so this is the whole message.
  const value = kind.codec.encode({ ...payload, schemaVersion: kind.version } as T).finish()
  return sealedEnvelope({ typeUrl: typeUrlOf(kind), value })
}

export function sealedEnvelope(payload: Any): Uint8Array {
  return Envelope.encode({ payload, checksum: checksumOf(payload) }).finish()
}

function checksumOf({ typeUrl, value }: Any): number {
  return crc32(value, crc32(Buffer.from(typeUrl)))
}

/** Throws an error that says what is wrong with the bytes. */
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
