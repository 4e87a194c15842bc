import { AgentServiceDefinition } from '../../gen/agent.ts'
import { HealthDefinition } from '../../gen/health.ts'
import {
  GetEventsResponse,
  IntrospectionDefinition,
  StreamEventsRequest,
} from '../../gen/microvm/agent/v1/introspection.ts'
import { LifecycleDefinition } from '../../gen/microvm/agent/v1/lifecycle.ts'
import type { GuestContext } from '../../handlers/guest/context.ts'
import type { NetworkContext } from '../../handlers/network/context.ts'
import type { Quiesce } from '../../handlers/quiesce/quiesce.ts'
import type { SandboxContext } from '../../handlers/sandbox/context.ts'
import type { MountContext } from '../../handlers/storage/mount-storage.ts'
import { limitsOf } from '../../rpc/call-limits.ts'
import { undecodable } from '../../rpc/count-elements.ts'
import type { CheckCall, MethodTable, StreamMethod, StreamTable } from '../../rpc/method.ts'
import { statusOf } from '../../rpc/status.ts'
import { NO_CALLER } from '../../state/request.ts'
import type { IntrospectionContext } from '../introspection/context.ts'
import type { Lifecycle } from '../lifecycle/lifecycle.ts'
import type { Policy } from '../policy/policy.ts'
import type { WrapperContext } from './context.ts'
import { containerMethods } from './methods/container.ts'
import { guestMethods } from './methods/guest.ts'
import { healthMethods } from './methods/health.ts'
import { introspectionMethods, type ServiceView } from './methods/introspection.ts'
import { lifecycleMethods } from './methods/lifecycle.ts'
import { networkMethods } from './methods/network.ts'
import { policyMethods } from './methods/policy.ts'
import { processMethods } from './methods/process.ts'
import { sandboxMethods } from './methods/sandbox.ts'
import { stdioMethods } from './methods/stdio.ts'
import { storageMethods } from './methods/storage.ts'
import type { DeclaredMethod, MessageType, Rpc, ServiceDefinition, ServiceMethods } from './rpc.ts'
import { wrap } from './wrapper.ts'

export interface ServiceContext {
  readonly sandbox: SandboxContext
  readonly storage: MountContext
  readonly network: NetworkContext
  readonly guest: GuestContext
  readonly policy: Policy
  readonly quiesce: Quiesce
  readonly introspection: IntrospectionContext
  readonly lifecycle: Lifecycle
}

export function declaredMethods(
  dependencies: ServiceContext,
  calls: ServiceView['calls'] = { failed: () => [], list: () => [] },
): readonly DeclaredMethod<unknown, unknown>[] {
  const { sandbox, storage, network, guest, policy, introspection, lifecycle } = dependencies
  const view: ServiceView = { calls, methods: () => methods }
  const methods = [
    ...methodsOf(HealthDefinition, healthMethods(guest.version)),
    ...methodsOf(IntrospectionDefinition, introspectionMethods(guest, introspection, view)),
    ...methodsOf(LifecycleDefinition, lifecycleMethods(dependencies, calls)),
    ...methodsOf(AgentServiceDefinition, {
      ...sandboxMethods(sandbox),
      ...containerMethods(sandbox),
      ...processMethods(sandbox),
      ...stdioMethods(sandbox),
      ...storageMethods(storage, sandbox),
      ...networkMethods(network),
      ...guestMethods(guest, lifecycle),
      ...policyMethods(policy),
    }),
  ]
  return methods
}

/** Keeps calls that may write to disks away while the pod is frozen. */
function servedBy<Request, Response>(
  quiesce: Pick<Quiesce, 'serve'>,
  { name, types, rpc }: DeclaredMethod<Request, Response>,
): DeclaredMethod<Request, Response> {
  if (rpc.whileFrozen === 'serve') return { name, types, rpc }
  const handle: typeof rpc.handle = (request, call) =>
    quiesce.serve(name, rpc.whileFrozen, () => rpc.handle(request, call))
  return { name, types, rpc: { ...rpc, handle } }
}

export function serviceMethods(
  dependencies: ServiceContext,
  wrapper: Omit<WrapperContext, 'admit' | 'policy' | 'requests' | 'names'>,
): MethodTable {
  const { lifecycle, policy, quiesce } = dependencies
  const admit = lifecycle.admit.bind(lifecycle)
  const { requests, containers } = dependencies.sandbox
  const { names } = containers
  const methods = declaredMethods(dependencies, wrapper.calls)
  return new Map(
    methods.map((method) => [
      method.name,
      {
        serve: wrap(servedBy(quiesce, method), { ...wrapper, admit, policy, requests, names }),
        share: method.rpc.share,
        dataField: method.rpc.dataField,
      },
    ]),
  )
}

export function streamMethods(
  {
    introspection: { events },
    lifecycle,
    policy,
  }: Pick<ServiceContext, 'introspection' | 'lifecycle' | 'policy'>,
  { gate, calls }: Pick<WrapperContext, 'gate' | 'calls'>,
): StreamTable {
  const check = policy.checkOf(STREAM_EVENTS)
  const streamEvents: StreamMethod = async (payload, incoming, send) => {
    const call = calls.begin({ name: STREAM_EVENTS, waits: true }, incoming)
    const limits = limitsOf({ hangup: incoming.hangup, timeoutMs: undefined }, call)
    const { signal } = limits
    try {
      await gate.wait(signal)
      lifecycle.admit(call)
      const request = decodeStreamEvents(payload)
      await check(request, { ...NO_CALLER, signal })
      for await (const answer of events.stream(request.afterSequence, signal)) {
        await send(GetEventsResponse.encode(answer).finish())
      }
      return undefined
    } catch (error) {
      return { ok: false, ...statusOf(error) }
    } finally {
      limits.release()
      call.end()
    }
  }
  return new Map([[STREAM_EVENTS, streamEvents]])
}

const STREAM_EVENTS = `${IntrospectionDefinition.fullName}/${IntrospectionDefinition.methods.streamEvents.name}`

function decodeStreamEvents(payload: Uint8Array): StreamEventsRequest {
  try {
    return StreamEventsRequest.decode(payload)
  } catch (error) {
    throw undecodable(error)
  }
}

/** Checks calls that are in no method table. */
export function checkCallOf(policy: Policy): CheckCall {
  return async (method, request, signal) => {
    try {
      await policy.checkOf(method)(request, { ...NO_CALLER, signal })
      return undefined
    } catch (error) {
      return { ok: false, ...statusOf(error) }
    }
  }
}

function methodsOf<Definition extends ServiceDefinition>(
  definition: Definition,
  declarations: ServiceMethods<Definition>,
): readonly DeclaredMethod<unknown, unknown>[] {
  return Object.entries(definition.methods).map(([key, { name, requestType, responseType }]) => ({
    name: `${definition.fullName}/${name}`,
    // `ServiceMethods` ties each declaration to the message types of the same method; Object.entries loses that tie.
    rpc: declarations[key] as Rpc<unknown, unknown>,
    types: {
      request: requestType as MessageType<unknown>,
      response: responseType as MessageType<unknown>,
    },
  }))
}
