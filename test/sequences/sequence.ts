import type { StatusCodeName } from '../../src/base/errors.ts'
import { AgentServiceDefinition } from '../../src/gen/agent.ts'
import { HealthDefinition } from '../../src/gen/health.ts'
import type { ServiceClient } from '../../src/rpc/client.ts'
import type { CallOptions } from '../../src/rpc/ttrpc/client.ts'

export interface Sequence {
  readonly caller: string
  readonly metadata: Readonly<Record<string, string>>
  /** Milliseconds for a call without its own limit. */
  readonly timeoutMs: number | 'none'
  /** Whether `grpc.Health` has its own connection. */
  readonly hasHealthConnection: boolean
  readonly containers: readonly string[]
  /** Parent cgroups that several containers share; they remain after the containers are removed. */
  readonly sharedCgroups: readonly string[]
  readonly steps: readonly Step[]
}

export interface Surroundings {
  /** A guest has a virtio-fs device kataShared with all root file systems, and replays the recordings too. */
  readonly isGuest: boolean
}

/** The caller destroys the sandbox, or the agent is killed and restarts. */
export type Ending = 'DestroySandbox' | 'dead agent'

export type Step =
  | CallStep
  | BeginStep
  | LoopStep
  | TimerStep
  | StopStep
  | ShownStep
  | EndStep
  | SharesStep
  | ConnectionStep

interface Calling {
  readonly timeoutMs?: number | 'none'
}

/** The end of a call. When both an answer and a failure are given, either is accepted. */
export interface Expected {
  /** Compared with `toMatchObject`. */
  readonly answers?: object
  readonly fails?: { readonly codes: readonly StatusCodeName[]; readonly text?: RegExp }
}

/**
 * The end of a call whose agent dies: the next agent's answer if the connection broker kept the connection, else
 * UNAVAILABLE (gRPC, or a dead broker).
 */
export const LOST: NonNullable<Expected['fails']> = {
  codes: ['INTERNAL', 'UNAVAILABLE'],
  text: /^Dead agent|closed|dropped|reset/i,
}

/** Without an expected end the call must succeed. */
export interface CallStep extends Calling, Expected {
  readonly call: RecordedCall
}

interface BeginStep extends Calling {
  readonly begin: string
  readonly call: RecordedCall
}

/** Repeats a call in the background after each response, until it fails or returns no data. */
interface LoopStep extends Calling {
  readonly loop: string
  readonly call: RecordedCall
}

/** A periodic call. A replay makes it once with each following step, because it does not wait for the period. */
interface TimerStep extends Calling, Expected {
  readonly timer: string
  readonly everyMs: number
  readonly call: RecordedCall
}

interface StopStep {
  readonly stop: string
}

interface ShownStep {
  readonly shown: string
  readonly by: string
}

/** Waits for the end of a background call, or of a loop, whose last call must end as expected. */
interface EndStep extends Expected {
  readonly ended: string
  readonly brought?: string | RegExp
}

/** The host makes a root file system appear in the guest, as in a shared folder. */
interface SharesStep {
  readonly shares: string
}

/**
 * `breaks`: the connection is lost with all background calls and dialled again. `agent dies`: the same, and the step ends
 * when a new agent listens. `ended`: the agent closes the connection.
 */
interface ConnectionStep {
  readonly connection: 'breaks' | 'agent dies' | 'ended'
}

export interface Clients {
  readonly agent: ServiceClient<typeof AgentServiceDefinition>
  readonly health: ServiceClient<typeof HealthDefinition>
}

export interface RecordedCall {
  /** The method's name in the proto, such as `CreateSandbox`. */
  readonly method: string
  readonly request: object
  readonly make: (clients: Clients, options: CallOptions) => Promise<unknown>
}

type Request<
  Service extends keyof Clients,
  Key extends keyof Clients[Service],
> = Clients[Service][Key] extends (request: infer Message, options?: CallOptions) => Promise<unknown>
  ? Message & object
  : never

export function agent<Key extends keyof Clients['agent']>(
  key: Key,
  request: Request<'agent', Key>,
): RecordedCall {
  return {
    method: AgentServiceDefinition.methods[key].name,
    request,
    // The request belongs to this method, but the compiler loses that in the union of all methods.
    make: ({ agent: client }, options) => (client[key] as AnyMethod)(request, options),
  }
}

export function health<Key extends keyof Clients['health']>(
  key: Key,
  request: Request<'health', Key>,
): RecordedCall {
  return {
    method: HealthDefinition.methods[key].name,
    request,
    make: ({ health: client }, options) => client[key](request, options),
  }
}

type AnyMethod = (request: object, options: CallOptions) => Promise<unknown>
