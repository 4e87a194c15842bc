import { setTimeout as delay } from 'node:timers/promises'
import { abortable } from '../../base/abort.ts'
import { AgentError, type StatusCodeName } from '../../base/errors.ts'
import type { GrpcConnection } from '../../client/connection/grpc-connection.ts'
import { ControllerServiceDefinition } from '../../gen/microvm/controller/v1/controller.ts'
import {
  HypervisorID,
  RunLeaseRequest,
  RunLeaseUpdate,
  RunLeaseUpdate_Status,
  VMControllerDefinition,
} from '../../gen/vm.ts'
import { clientFor, type ServiceClient } from '../../rpc/client.ts'
import type { CallOptions } from '../../rpc/ttrpc/client.ts'
import { CONTROLLER, type Credentials } from '../tls/credentials.ts'
import { dialHost } from '../tls/dial-host.ts'
import { type Endpoint, endpointText } from '../tls/endpoint.ts'
import { isSameHypervisor } from './hypervisor-id.ts'

/** The controllers, as a host calls them: any of them answers any call. */
export interface ControllerClient {
  /**
   * A call goes to the next controller when one does not answer, until its time is over: 10 s by default, and 60 s for
   * EnsureMigrationTarget. Rejects with an `AgentError`, UNAVAILABLE when no controller has answered. A switchover that was
   * carried out although its answer was lost succeeds.
   */
  readonly vms: Omit<ServiceClient<VMControllerDefinition>, 'runLease'>
  readonly service: ServiceClient<ControllerServiceDefinition>
  /**
   * Whether `us` may run its VM, and each change, from one controller after another as their connections end. Unknown statuses are
   * left out. Ends with the signal. Throws what no other controller would answer otherwise, such as NOT_FOUND.
   */
  runLease(us: HypervisorID, signal: AbortSignal): AsyncGenerator<RunLeaseUpdate, void, undefined>
  /** Fails the open calls. */
  close(): void
}

const CALL_MS = 10_000
/** The controller waits for the health of a target. */
const TARGET_MS = 60_000
/** How long one controller may take before the next one is asked. */
const ATTEMPT_MS = 3000
/** A caller that gives up after this time has met a controller that does not answer: its next call goes to another one. */
const IMPATIENT_MS = 250
const CONNECT_MS = 2000
/** A connection whose streams are silent is asked so often whether the controller is still there. */
const PING_MS = 5000
const FIRST_PAUSE_MS = 100
const LONGEST_PAUSE_MS = 2000
/** A connection of the server has room for no more than 128 streams. */
const STREAMS_OF_CONNECTION = 100

/** Nothing is connected before the first call. `endpoints` has at least one. */
export function openController(options: {
  readonly endpoints: readonly Endpoint[]
  readonly credentials: Credentials
}): ControllerClient {
  const controllers = new Controllers(options)
  const calling = { call: controllers.call }
  const { runLease: _, ...vms } = clientFor(VMControllerDefinition, calling)
  const service = clientFor(ControllerServiceDefinition, calling)
  return {
    service,
    vms: {
      ensureMigrationTarget: (request, given) =>
        vms.ensureMigrationTarget(request, { timeoutMs: TARGET_MS, ...given }),
      migrationSwitchover: async (request, given) => {
        try {
          return await vms.migrationSwitchover(request, given)
        } catch (error) {
          if (codeOf(error) !== 'FAILED_PRECONDITION') throw error
          const us = HypervisorID.fromPartial(request.us ?? {})
          const { namespace, vmName: name } = us
          const vm = await service.getVm({ namespace, name }, given).catch(() => undefined)
          if (isSameHypervisor(vm?.authoritative, us)) return {}
          throw error
        }
      },
    },
    runLease: (us, signal) => controllers.runLease(us, signal),
    close: () => controllers.close(),
  }
}

/** One connection for calls, and more for the streams. */
class Controllers {
  readonly #endpoints: readonly Endpoint[]
  readonly #credentials: Credentials
  readonly #closed = new AbortController()
  /** Index of the endpoint that is called. */
  #current = 0
  #calls: Promise<GrpcConnection> | undefined
  readonly #streams = new Set<StreamConnection>()

  constructor({
    endpoints,
    credentials,
  }: {
    readonly endpoints: readonly Endpoint[]
    readonly credentials: Credentials
  }) {
    this.#endpoints = endpoints
    this.#credentials = credentials
  }

  readonly call = async (
    service: string,
    method: string,
    payload: Uint8Array,
    options: CallOptions = {},
  ): Promise<Uint8Array> => {
    const { timeoutMs = CALL_MS } = options
    const until = performance.now() + timeoutMs
    const signal = AbortSignal.any([this.#closed.signal, ...(options.signal ? [options.signal] : [])])
    // A controller that waits for a target answers late.
    const attemptMs = timeoutMs > CALL_MS ? timeoutMs : ATTEMPT_MS
    for (let attempt = 1; ; attempt++) {
      const index = this.#current
      const begun = performance.now()
      try {
        const left = Math.max(1, until - performance.now())
        const connection = await this.#connected(signal, left)
        const limits = { signal, timeoutMs: Math.min(attemptMs, Math.max(1, until - performance.now())) }
        return await connection.call(service, method, payload, { ...options, ...limits })
      } catch (error) {
        if (signal.aborted && performance.now() - begun >= IMPATIENT_MS) this.#leave(index)
        signal.throwIfAborted()
        if (!MAY_PASS.includes(codeOf(error) ?? 'OK')) throw error
        this.#leave(index)
        if (performance.now() >= until) throw this.#unanswered(error)
      }
      if (attempt % this.#endpoints.length === 0) await this.#pause(attempt, signal)
      if (performance.now() >= until) throw this.#unanswered(undefined)
    }
  }

  async *runLease(us: HypervisorID, signal: AbortSignal): AsyncGenerator<RunLeaseUpdate, void, undefined> {
    const over = AbortSignal.any([this.#closed.signal, signal])
    const request = RunLeaseRequest.encode(RunLeaseRequest.fromPartial({ us })).finish()
    for (let attempt = 1; !over.aborted; attempt++) {
      try {
        for await (const update of this.#leaseOf(request, over)) {
          attempt = 0
          const { status } = update
          if (status === RunLeaseUpdate_Status.STATUS_OK || status === RunLeaseUpdate_Status.STATUS_TERMINATE)
            yield update
        }
      } catch (error) {
        if (over.aborted) return
        if (FINAL.includes(codeOf(error) ?? 'OK')) throw error
      }
      await this.#pause(attempt, over).catch(() => {})
    }
  }

  close(): void {
    this.#closed.abort(new AgentError('CANCELLED', 'the client of the controllers is closed'))
    this.#drop()
    for (const { connection } of this.#streams) connection.close()
  }

  async *#leaseOf(request: Uint8Array, signal: AbortSignal): AsyncGenerator<RunLeaseUpdate, void, undefined> {
    const place = await this.#streamPlace(signal)
    place.streams += 1
    const { connection } = place
    const cancelled = new AbortController()
    try {
      const call = connection.stream(
        VMControllerDefinition.fullName,
        VMControllerDefinition.methods.runLease.name,
      )
      signal.addEventListener('abort', () => call.cancel(), { once: true, signal: cancelled.signal })
      await call.send(request)
      call.end()
      for await (const answer of call.answers) yield RunLeaseUpdate.decode(answer)
    } catch (error) {
      // The next streams go to another controller; those that this connection has go on.
      if (!signal.aborted && !FINAL.includes(codeOf(error) ?? 'OK')) {
        this.#streams.delete(place)
        this.#leave(place.index)
      }
      throw error
    } finally {
      cancelled.abort()
      place.streams -= 1
      if (place.streams === 0) this.#forget(place)
    }
  }

  /** A connection with room for one more stream. */
  async #streamPlace(signal: AbortSignal): Promise<StreamConnection> {
    const found = [...this.#streams].find(({ streams }) => streams < STREAMS_OF_CONNECTION)
    if (found !== undefined) return found
    const index = this.#current
    try {
      const place = { connection: await this.#dial(signal, CONNECT_MS), index, streams: 0 }
      this.#streams.add(place)
      const pings = pingAlways(place.connection)
      void place.connection.closed.then(() => {
        clearInterval(pings)
        this.#streams.delete(place)
      })
      return place
    } catch (error) {
      this.#leave(index)
      throw error
    }
  }

  #forget(place: StreamConnection): void {
    this.#streams.delete(place)
    place.connection.close()
  }

  #connected(signal: AbortSignal, withinMs: number): Promise<GrpcConnection> {
    if (this.#calls === undefined) {
      const dialed = this.#dial(this.#closed.signal, Math.min(CONNECT_MS, withinMs))
      this.#calls = dialed
      dialed.then(
        (connection) => connection.closed.then(() => this.#calls === dialed && this.#drop()),
        () => this.#calls === dialed && this.#drop(),
      )
    }
    return abortable(this.#calls, signal)
  }

  #dial(signal: AbortSignal, withinMs: number): Promise<GrpcConnection> {
    const endpoint = this.#endpoints[this.#current % this.#endpoints.length]
    if (endpoint === undefined) throw new Error('controllers: no endpoint')
    return dialHost(endpoint, { name: CONTROLLER, credentials: this.#credentials, signal, withinMs })
  }

  /** The next calls go to another controller, unless another call has turned to it already. */
  #leave(index: number): void {
    if (index !== this.#current) return
    this.#current = (index + 1) % this.#endpoints.length
    this.#drop()
  }

  #drop(): void {
    const dropped = this.#calls
    this.#calls = undefined
    dropped?.then((connection) => connection.close()).catch(() => {})
  }

  async #pause(attempt: number, signal: AbortSignal): Promise<void> {
    const ms = Math.min(LONGEST_PAUSE_MS, FIRST_PAUSE_MS * 2 ** Math.min(attempt, 10))
    await delay(ms, undefined, { signal }).catch(() => signal.throwIfAborted())
  }

  #unanswered(cause: unknown): AgentError {
    const names = this.#endpoints.map(endpointText).join(', ')
    return new AgentError('UNAVAILABLE', `controllers ${names}: no answer in time`, { cause })
  }
}

/** Closes a connection whose other end does not answer any more. */
function pingAlways(connection: GrpcConnection): NodeJS.Timeout {
  let isAnswered = true
  const ping = () => {
    if (!isAnswered) return connection.close()
    isAnswered = false
    connection.ping().then(
      () => {
        isAnswered = true
      },
      () => {},
    )
  }
  return setInterval(ping, PING_MS).unref()
}

interface StreamConnection {
  readonly connection: GrpcConnection
  /** Of its endpoint. */
  readonly index: number
  streams: number
}

/** What another controller may answer otherwise. */
const MAY_PASS: readonly StatusCodeName[] = ['UNAVAILABLE', 'DEADLINE_EXCEEDED', 'CANCELLED']

const FINAL: readonly StatusCodeName[] = [
  'NOT_FOUND',
  'PERMISSION_DENIED',
  'INVALID_ARGUMENT',
  'UNIMPLEMENTED',
]

function codeOf(error: unknown): StatusCodeName | undefined {
  return error instanceof AgentError ? error.code : undefined
}
