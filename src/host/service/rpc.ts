import type { Encoder } from '../../rpc/encode.ts'
import type { Caller } from '../instance/instances.ts'
import type { Peer } from '../tls/credentials.ts'

/** Who may call: the administrator, or also a tenant, who sees its own instances. */
export type Role = 'admin' | 'owner'

/**
 * What becomes of a call when the daemon dies before the answer is sent. The caller repeats it; a changing one best with
 * the metadata `idempotency-key`, by which the next daemon answers it from its record or, without an outcome, runs it again.
 *
 * - `read`: changes nothing.
 * - `idempotent`: finds done what its first run did, also without a key.
 * - `journaled`: acts again without a key.
 */
export type OnDaemonDeath = 'read' | 'idempotent' | 'journaled'

/** A call of a service of this daemon. */
export interface ServiceCall extends Caller {
  readonly metadata: (name: string) => string | undefined
  /** Who has called over TLS; undefined on the sockets of this host. */
  readonly peer?: Peer | undefined
}

interface Declared {
  readonly role: Role
  readonly onDaemonDeath: OnDaemonDeath
  /** Who else may call over TLS, as the administrator. By default nobody. */
  readonly remote?: readonly Peer['role'][]
}

export interface UnaryRpc<Request, Response> extends Declared {
  readonly handle: (request: Request, call: ServiceCall) => Promise<Response>
  /** Whether the journal keeps nothing of the call, not even its digest. */
  readonly isUnrecorded?: true
  /** Whether the call only makes room: then it is carried out although a full disk takes no record of it. */
  readonly frees?: (request: Request) => boolean
}

export interface StreamRpc<Request, Response> extends Declared {
  readonly handleStream: (request: Request, call: ServiceCall) => AsyncIterable<Response>
}

export interface DuplexRpc<Request, Response> extends Declared {
  /**
   * Makes the encoder of a call, in place of the generated one, which copies long bytes several times. A message has been sent
   * before the next is encoded.
   */
  readonly encoder?: () => (response: Response) => Uint8Array
  readonly handleDuplex: (requests: AsyncIterable<Request>, call: ServiceCall) => AsyncIterable<Response>
}

export interface MessageType<Message> extends Encoder<Message> {
  decode(payload: Uint8Array): Message
}

interface AnyMessageType {
  // `never`, because each method has messages of its own.
  encode(message: never): { finish(): Uint8Array }
  decode(payload: Uint8Array): unknown
}

export interface MethodDefinition {
  readonly name: string
  readonly requestType: AnyMessageType
  readonly requestStream: boolean
  readonly responseType: AnyMessageType
  readonly responseStream: boolean
}

export interface ServiceDefinition {
  readonly fullName: string
  readonly methods: Readonly<Record<string, MethodDefinition>>
}

type RpcOf<Method extends MethodDefinition, Request, Response> = Method['requestStream'] extends true
  ? DuplexRpc<Request, Response>
  : Method['responseStream'] extends true
    ? StreamRpc<Request, Response>
    : UnaryRpc<Request, Response>

/** A missing RPC does not compile, nor does one of another form. */
export type ServiceMethods<Definition extends ServiceDefinition> = {
  readonly [Name in keyof Definition['methods']]: RpcOf<
    Definition['methods'][Name],
    ReturnType<Definition['methods'][Name]['requestType']['decode']>,
    ReturnType<Definition['methods'][Name]['responseType']['decode']>
  >
}

export type AnyRpc = UnaryRpc<unknown, unknown> | StreamRpc<unknown, unknown> | DuplexRpc<unknown, unknown>

export interface DeclaredMethod {
  /** Full name, such as `microvm.instance.v1.InstanceService/Plug`. */
  readonly name: string
  readonly types: { readonly request: MessageType<unknown>; readonly response: MessageType<unknown> }
  readonly rpc: AnyRpc
}

export function methodsOf<Definition extends ServiceDefinition>(
  definition: Definition,
  declarations: ServiceMethods<Definition>,
): readonly DeclaredMethod[] {
  return Object.entries(definition.methods).map(([key, { name, requestType, responseType }]) => ({
    name: `${definition.fullName}/${name}`,
    // `ServiceMethods` ties each declaration to the messages of its method; Object.entries loses that tie.
    rpc: declarations[key] as AnyRpc,
    types: {
      request: requestType as MessageType<unknown>,
      response: responseType as MessageType<unknown>,
    },
  }))
}
