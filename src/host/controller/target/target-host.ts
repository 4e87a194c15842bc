import { setTimeout as delay } from 'node:timers/promises'
import { AgentError, messageOf } from '../../../base/errors.ts'
import type { GrpcConnection } from '../../../client/connection/grpc-connection.ts'
import { HealthCheckResponse_ServingStatus, HealthDefinition } from '../../../gen/grpc/health/v1/health.ts'
import type { Host } from '../../../gen/microvm/controller/v1/controller.ts'
import { InstanceServiceDefinition, State } from '../../../gen/microvm/instance/v1/instance.ts'
import { clientFor } from '../../../rpc/client.ts'
import type { Credentials } from '../../tls/credentials.ts'
import { dialHost } from '../../tls/dial-host.ts'
import { parseEndpoint } from '../../tls/endpoint.ts'
import { DEFAULT_NAMESPACE } from '../hypervisor-id.ts'
import type { VmName } from '../store/keys.ts'

/** Makes and removes the target of a move on a host. */
export interface TargetHosts {
  /**
   * Has the host make the instance that awaits the VM from the endpoint `source`, or find it, and waits until the host is healthy.
   * Throws UNAVAILABLE when it does not answer within 15 s, and the host's own refusal otherwise.
   */
  ensure(host: Host, vm: VmName, source: string, signal: AbortSignal): Promise<void>
  /** Removes an instance that still awaits its VM. */
  abandon(host: Host, vm: VmName, signal: AbortSignal): Promise<void>
}

const TARGET_MS = 15_000
const CALL_MS = 10_000
const RETRY_MS = 200

export function targetHosts(credentials: Credentials): TargetHosts {
  const withHost = async <Result>(
    { id: name, endpoint: text }: Host,
    signal: AbortSignal,
    work: (connection: GrpcConnection) => Promise<Result>,
  ): Promise<Result> => {
    const endpoint = parseEndpoint(text)
    if (endpoint === undefined) throw new AgentError('UNAVAILABLE', `host ${name}: endpoint ${text}`)
    const connection = await dialHost(endpoint, { name, credentials, signal })
    try {
      return await work(connection)
    } finally {
      connection.close()
    }
  }
  return {
    ensure: async (host, { name, namespace }, source, signal) => {
      const over = AbortSignal.any([signal, AbortSignal.timeout(TARGET_MS)])
      const properties = { key: name, tenant: namespace === DEFAULT_NAMESPACE ? '' : namespace }
      for (;;) {
        try {
          return await withHost(host, over, async (connection) => {
            await clientFor(InstanceServiceDefinition, connection).ensureInstance(
              { properties, migrationTarget: { source } },
              { signal: over, timeoutMs: CALL_MS },
            )
            const health = clientFor(HealthDefinition, connection)
            const { status } = await health.check({}, { signal: over, timeoutMs: CALL_MS })
            if (status !== HealthCheckResponse_ServingStatus.SERVING)
              throw new AgentError('UNAVAILABLE', `host ${host.id}: not serving`)
          })
        } catch (error) {
          signal.throwIfAborted()
          if (over.aborted)
            throw new AgentError('UNAVAILABLE', `host ${host.id}: no healthy target in ${TARGET_MS} ms`, {
              cause: error,
            })
          if (!(error instanceof AgentError) || error.code !== 'UNAVAILABLE') throw error
        }
        await delay(RETRY_MS, undefined, { signal: over }).catch(() => {})
      }
    },
    abandon: async (host, { name: key }, signal) => {
      const over = AbortSignal.any([signal, AbortSignal.timeout(CALL_MS)])
      await withHost(host, over, async (connection) => {
        const instances = clientFor(InstanceServiceDefinition, connection)
        const { state } = await instances.getInstance({ key }, { signal: over, timeoutMs: CALL_MS })
        if (state === State.AWAITING) await instances.remove({ key }, { signal: over, timeoutMs: CALL_MS })
      }).catch((error) => {
        throw new AgentError('UNAVAILABLE', `host ${host.id}: target not removed: ${messageOf(error)}`)
      })
    },
  }
}
