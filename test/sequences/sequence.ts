import type { StatusCodeName } from '../../src/base/errors.ts'
import type { Storage } from '../../src/gen/agent.ts'
import { AgentServiceDefinition } from '../../src/gen/agent.ts'
import { HealthDefinition } from '../../src/gen/health.ts'
import type { ServiceClient } from '../../src/rpc/client.ts'
import type { CallOptions } from '../../src/rpc/ttrpc/client.ts'

/** The calls a caller makes in its life with one sandbox, in their order, from its dial to the connection's end. */
export interface Sequence {
  /** Who makes them. */
  readonly caller: string
  /** Sent with every call. */
  readonly metadata: Readonly<Record<string, string>>
  /** The limit of a call that names none, in milliseconds. */
  readonly timeoutMs: number | 'none'
  /** `grpc.Health` is called on another connection than `grpc.AgentService`. */
  readonly hasHealthConnection: boolean
  /** All containers' ids. */
  readonly containers: readonly string[]
  /** Folders of cgroups that containers are put into together, and that outlive them. */
  readonly sharedCgroups: readonly string[]
  readonly steps: readonly Step[]
}

/** What of a sequence depends on where it is played. */
export interface Surroundings {
  /**
   * `shared folder`: there is a virtio-fs device with the tag kataShared, and all root file systems are in it. Else
   * storages that bring a root file system at each of the paths.
   */
  readonly roots: 'shared folder' | ((paths: readonly string[]) => readonly Storage[])
  /** False for a machine that others use as well. */
  readonly isGuest: boolean
  /** PCI path of a disk to swap on, if there is one. */
  readonly swapDisk: readonly number[] | undefined
}

/** How a sequence ends: the caller takes the sandbox down, or the agent dies in the middle of it and comes back. */
export type Ending = 'DestroySandbox' | 'dead agent'

/** Parts of the API that are not served yet, by the name of their area. */
export type PendingArea = 'storage and devices' | 'network' | 'guest services'

/** One thing that a caller, or the host besides it, does. */
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

interface AnyStep {
  /** The section of the behaviour spec that says so. */
  readonly from: string
}

interface Calling extends AnyStep {
  /** Milliseconds, where it is not the sequence's own limit. */
  readonly timeoutMs?: number | 'none'
}

/** How a call ends; where an answer and a failure are named, either is right. */
export interface Expected {
  /** Fields of the answer, as `toMatchObject` takes them. */
  readonly answers?: object
  readonly fails?: { readonly codes: readonly StatusCodeName[]; readonly text?: RegExp }
}

/** A call whose answer is awaited; one that names no end succeeds. */
export interface CallStep extends Calling, Expected {
  readonly call: RecordedCall
  /** It must answer UNIMPLEMENTED until its area takes the mark away. */
  readonly pending?: PendingArea
}

/** A call that goes on beside the steps that follow. */
interface BeginStep extends Calling {
  readonly begin: string
  readonly call: RecordedCall
}

/** A call made again and again, each as soon as the one before was answered, until it fails or answers no data. */
interface LoopStep extends Calling {
  readonly loop: string
  readonly call: RecordedCall
}

/** A call made every so often; here once beside each of the steps that follow, for a replay takes no time. */
interface TimerStep extends Calling, Expected {
  readonly timer: string
  readonly everyMs: number
  readonly call: RecordedCall
}

/** The timer makes no more calls. */
interface StopStep extends AnyStep {
  readonly stop: string
}

/** Waits until the loop has brought the text. */
interface ShownStep extends AnyStep {
  readonly shown: string
  readonly by: string
}

/** Waits for the end of what was begun, or of a loop, whose last call it describes. */
interface EndStep extends AnyStep, Expected {
  readonly ended: string
  /** All that the loop has brought. */
  readonly brought?: string | RegExp
}

/** The host makes a root file system appear at the guest's path, as a shared folder would show it. */
interface SharesStep extends AnyStep {
  readonly shares: string
}

/**
 * What becomes of the connection. `breaks`: it is lost, with all that goes on beside, and dialled anew. `agent dies`: it
 * is lost in that way; the step ends when another agent listens. `ended`: the agent closes it.
 */
interface ConnectionStep extends AnyStep {
  readonly connection: 'breaks' | 'agent dies' | 'ended'
}

/** The clients of one connection. */
export interface Clients {
  readonly agent: ServiceClient<typeof AgentServiceDefinition>
  readonly health: ServiceClient<typeof HealthDefinition>
}

/** One request of a sequence. */
export interface RecordedCall {
  /** As in the proto, such as `CreateSandbox`. */
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
    // The request is the one of this very method, which the compiler cannot follow through a union of them all.
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
