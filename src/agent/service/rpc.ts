import type { WhileFrozen } from '../../handlers/quiesce/quiesce.ts'
import type { Encoder } from '../../rpc/encode.ts'
import type { Share } from '../../rpc/limits.ts'
import type { Encoded } from '../../rpc/method.ts'
import type { Call } from '../../state/request.ts'
import type { BootGate } from '../boot/gate.ts'
import type { Policy } from '../policy/policy.ts'

/**
 * How a restarted agent treats a call in which the previous agent died before the answer was written:
 *
 * - `read`: runs it again, because it changes nothing.
 * - `idempotent`: runs it again, because a second run gives the same answer.
 * - `journaled`: answers it from the outcome recorded under its number, finishes it, or undoes and runs it. Answers that
 *   consume output, an OOM event or an exit status are journaled too: the consumed part is recorded before the answer, and
 *   discarded once the answer is written.
 * - `at-most-once`: is recorded right before its effect; a repeated call with that record is answered and not run. It
 *   answers `google.protobuf.Empty`.
 *
 * A hook that a `journaled` call runs is itself run at most once.
 */
export type Recovery = 'read' | 'idempotent' | 'journaled' | 'at-most-once'

/**
 * With an idempotency key a call `goes on` without its connection, or it `ends` with it and only its outcome is kept.
 * `refused`: what its answer takes away cannot be kept. `ignored`: it changes nothing.
 */
export type KeyUse = 'goes on' | 'ends' | 'refused' | 'ignored'

export interface Rpc<Request, Response> {
  readonly handle: (request: Request, call: Call) => Promise<Response>
  readonly recovery: Recovery
  /** `handle` records what its answer consumes. Otherwise the wrapper records the answer of a `journaled` RPC. */
  readonly ownJournal?: true
  /** Nothing is recorded: the record of the changed container or process shows the outcome. */
  readonly answeredByRecord?: true
  /** After a hang-up or a deadline, `cancel` aborts the work and waits for its undo; `finish` lets it run to its end. */
  readonly onHangup: 'cancel' | 'finish'
  /** What becomes of an idempotency key; {@link keyUseOf} has the default. */
  readonly key?: KeyUse
  /** `open`: answered also while the agent boots. */
  readonly gate: 'wait' | 'open'
  readonly share: Share
  /** What may write to a disk is refused while the pod is frozen. Unless declared otherwise: all but `read`. */
  readonly whileFrozen: WhileFrozen
  /** `work` waits while `LIMITS.workingCalls` others work. `brief` and `wait` begin at once; `wait` may last very long. */
  readonly turn: 'work' | 'wait' | 'brief'
  /** The policy's rule has the name of the request, or of `message` with the same fields. `itself`: `handle` checks. */
  readonly rule: 'request' | 'none' | 'itself' | { readonly message: string }
  /** Nothing in the call waits, so the record of its steps is spared. */
  readonly hasSteps?: false
  /** `debug` for frequent calls, so that a log at level info stays readable. */
  readonly logLevel: 'info' | 'debug'
  /** The number of the request's last field, `data`, which may stay in a file. */
  readonly dataField?: number
  /** The caller may name its read (`output-read`). */
  readonly readsOutput?: true
  /** Encodes the response in place of the generated code. */
  encode?(response: Response): Encoded
  /** Answers a call that the policy refuses; the call runs, its result is dropped. Without it, a refused call fails. */
  emptied?(): Response
}

/** The part of ts-proto's message types that the service needs. */
export interface MessageType<Message> extends Encoder<Message> {
  decode(payload: Uint8Array): Message
}

export interface DeclaredMethod<Request, Response> {
  /** Full name, such as `grpc.Health/Check`. */
  readonly name: string
  readonly types: { readonly request: MessageType<Request>; readonly response: MessageType<Response> }
  readonly rpc: Rpc<Request, Response>
}

/** `never`, because each type has messages of its own. */
interface AnyMessageType {
  encode(message: never): { finish(): Uint8Array }
  decode(payload: Uint8Array): unknown
}

interface MethodDefinition {
  readonly name: string
  readonly requestType: AnyMessageType
  readonly responseType: AnyMessageType
}

export interface ServiceDefinition {
  readonly fullName: string
  readonly methods: Readonly<Record<string, MethodDefinition>>
}

type DecodedBy<Type extends AnyMessageType> = ReturnType<Type['decode']>

/** `handle` may resolve with anything when the RPC answers `google.protobuf.Empty`. */
type Answer<Response> = keyof Response extends never ? unknown : Response

/** A missing RPC does not compile. */
export type ServiceMethods<Definition extends ServiceDefinition> = {
  readonly [Name in keyof Definition['methods']]: Rpc<
    DecodedBy<Definition['methods'][Name]['requestType']>,
    Answer<DecodedBy<Definition['methods'][Name]['responseType']>>
  >
}

export function keyUseOf({ key, ownJournal, recovery }: Omit<Rpc<never, unknown>, 'handle'>): KeyUse {
  if (key !== undefined) return key
  if (recovery === 'read') return 'ignored'
  return ownJournal === true ? 'refused' : 'goes on'
}

type Handle<Request, Response> = (request: Request, call: Call) => Promise<Response>

type More<Request, Response> = Partial<Omit<Rpc<Request, Response>, 'handle' | 'recovery'>>

/** An RPC whose signal fires at a hang-up or at the deadline; the wrapper then waits for its undo. */
export function cancellable<Request, Response>(
  recovery: Recovery,
  handle: Handle<Request, Response>,
  more: More<Request, Response> = {},
): Rpc<Request, Response> {
  return { handle, recovery, ...ORDINARY, whileFrozen: byRecovery(recovery), onHangup: 'cancel', ...more }
}

/** A cancellable RPC with a journal of its own, because its answer consumes something. */
export function taking<Request, Response>(
  handle: Handle<Request, Response>,
  more: More<Request, Response> = {},
): Rpc<Request, Response> {
  return cancellable('journaled', handle, { ownJournal: true, ...more })
}

/** An RPC whose work, once begun, runs to its end. */
export function finishing<Request, Response>(
  recovery: Recovery,
  handle: Handle<Request, Response>,
  more: More<Request, Response> = {},
): Rpc<Request, Response> {
  return { handle, recovery, ...ORDINARY, whileFrozen: byRecovery(recovery), onHangup: 'finish', ...more }
}

/** An RPC that is answered also while the agent boots, and logged at debug. */
export function immediate<Request, Response>(
  recovery: Recovery,
  handle: Handle<Request, Response>,
  more: More<Request, Response> = {},
): Rpc<Request, Response> {
  return cancellable(recovery, handle, { gate: 'open', turn: 'brief', logLevel: 'debug', ...more })
}

function byRecovery(recovery: Recovery): WhileFrozen {
  return recovery === 'read' ? 'serve' : 'refuse'
}

/** For calls that change something, and write to no disk. */
export const NO_DISK = { whileFrozen: 'serve' } as const

const ORDINARY = { gate: 'wait', share: 'ordinary', turn: 'work', rule: 'request', logLevel: 'info' } as const

export type Gate = Pick<BootGate, 'isOpen' | 'wait'>

export type Checks = Pick<Policy, 'checkOf'>
