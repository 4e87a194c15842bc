import type { StatusCodeName } from '../../src/base/errors.ts'
import { AgentServiceDefinition } from '../../src/gen/agent.ts'
import { HealthDefinition } from '../../src/gen/health.ts'
import type { ServiceClient } from '../../src/rpc/client.ts'
import type { CallOptions } from '../../src/rpc/ttrpc/client.ts'

/** The calls that a caller makes for one sandbox, in order, from the first connection to its end. */
export interface Sequence {
  /** The name of the caller. */
  readonly caller: string
  /** Sent with every call. */
  readonly metadata: Readonly<Record<string, string>>
  /** The time limit in milliseconds of a call without one of its own. */
  readonly timeoutMs: number | 'none'
  /** Whether `grpc.Health` is called on a connection of its own, separate from `grpc.AgentService`. */
  readonly hasHealthConnection: boolean
  /** The ids of all containers. */
  readonly containers: readonly string[]
  /** Parent cgroups that several containers share, and that remain after the containers are removed. */
  readonly sharedCgroups: readonly string[]
  readonly steps: readonly Step[]
}

/** The properties of the machine that a sequence depends on. */
export interface Surroundings {
  /**
   * In a guest a virtio-fs device with the tag kataShared contains all root file systems, and the recordings are replayed
   * too. Another machine has no such device.
   */
  readonly isGuest: boolean
}

/** How a sequence ends: the caller destroys the sandbox, or the agent is killed and restarts. */
export type Ending = 'DestroySandbox' | 'dead agent'

/** One action of the caller or of the host. */
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
  /** The time limit in milliseconds, if it differs from that of the sequence. */
  readonly timeoutMs?: number | 'none'
}

/** How a call ends; when both an answer and a failure are given, either is accepted. */
export interface Expected {
  /** Fields of the response, compared with `toMatchObject`. */
  readonly answers?: object
  readonly fails?: { readonly codes: readonly StatusCodeName[]; readonly text?: RegExp }
}

/**
 * How a call ends in which the agent dies: by the next agent's answer where the connection broker has kept the connection,
 * else with its connection (gRPC, and when the broker has died too).
 */
export const LOST: NonNullable<Expected['fails']> = {
  codes: ['INTERNAL', 'UNAVAILABLE'],
  text: /^Dead agent|closed|dropped|reset/i,
}

/** A call whose end is awaited; without an expected end it must succeed. */
export interface CallStep extends Calling, Expected {
  readonly call: RecordedCall
}

/** A call that runs in the background of the following steps. */
interface BeginStep extends Calling {
  readonly begin: string
  readonly call: RecordedCall
}

/** A call that is repeated in the background after each response, until it fails or returns no data. */
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

/** Stops a timer. */
interface StopStep {
  readonly stop: string
}

/** Waits until the loop has received the text. */
interface ShownStep {
  readonly shown: string
  readonly by: string
}

/** Waits for the end of a background call, or of a loop, whose last call must end as expected. */
interface EndStep extends Expected {
  readonly ended: string
  /** All data that the loop has received. */
  readonly brought?: string | RegExp
}

/** The host makes a root file system appear at a path of the guest, as in a shared folder. */
interface SharesStep {
  readonly shares: string
}

/**
 * The fate of the connection. `breaks`: it is lost with all background calls and dialled again. `agent dies`: the same,
 * and the step ends when a new agent listens. `ended`: the agent closes the connection.
 */
interface ConnectionStep {
  readonly connection: 'breaks' | 'agent dies' | 'ended'
}

/** The clients of one connection. */
export interface Clients {
  readonly agent: ServiceClient<typeof AgentServiceDefinition>
  readonly health: ServiceClient<typeof HealthDefinition>
}

/** One request of a sequence. */
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

/** A request to `grpc.AgentService`. */
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

/** A request to `grpc.Health`. */
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
