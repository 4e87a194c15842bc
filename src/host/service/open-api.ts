import { readFile } from 'node:fs/promises'
import type { Socket } from 'node:net'
import { join } from 'node:path'
import { AgentError } from '../../base/errors.ts'
import type { Logger } from '../../base/log.ts'
import { HealthDefinition } from '../../gen/grpc/health/v1/health.ts'
import { HandoverDefinition } from '../../gen/microvm/instance/v1/handover.ts'
import { InstanceServiceDefinition } from '../../gen/microvm/instance/v1/instance.ts'
import { SecretServiceDefinition } from '../../gen/microvm/instance/v1/secret.ts'
import { HypervisorDefinition, OOBManagementDefinition, VMControllerDefinition } from '../../gen/vm.ts'
import { LIMITS, Totals } from '../../rpc/limits.ts'
import type { CheckCall } from '../../rpc/method.ts'
import type { Instances } from '../instance/instances.ts'
import type { Templates } from '../migration/templates.ts'
import type { Secrets } from '../secrets/secrets.ts'
import type { Credentials, Peer } from '../tls/credentials.ts'
import type { Endpoint } from '../tls/endpoint.ts'
import { listenForHosts } from '../tls/listen-hosts.ts'
import { ApiSockets } from './api-sockets.ts'
import type { CallJournal } from './call-journal.ts'
import type { Tenant } from './configuration.ts'
import { HostCalls } from './host-calls.ts'
import { handoverMethods, hypervisorMethods } from './hosts/move-methods.ts'
import type { OnlyMachine } from './hypervisor/only-machine.ts'
import { instanceMethods } from './instance-methods.ts'
import { methodsOf } from './rpc.ts'
import { secretMethods } from './secret-methods.ts'
import { servedTables } from './serve.ts'
import { controllerMethods, outOfBandMethods } from './vm-methods.ts'

export interface ApiParts {
  readonly instances: Instances
  readonly secrets: Secrets
  readonly journal: CallJournal
  readonly tenants: readonly Tenant[]
  readonly templates?: Templates | undefined
  /** Of a hypervisor, which serves no VMController. */
  readonly only?: OnlyMachine | undefined
  readonly log: Logger
}

/** The API of instances, on sockets. */
export interface Api {
  /** Serves a tenant, or the administrator. */
  listen(path: string, tenant?: Tenant): Promise<void>
  /** Serves other hosts, and controllers. */
  listenForHosts(endpoint: Endpoint, credentials: Credentials): Promise<void>
  /** Resolves once those that move a machine, give one, or are attached to one have heard the end of it, or after 5 s. */
  told(): Promise<void>
  /** Ends streams, and resolves once the other calls have ended or their time is over. */
  close(): Promise<void>
}

/** Calls that end with a machine that has moved. */
const TOLD = [
  `${InstanceServiceDefinition.fullName}/${InstanceServiceDefinition.methods.migrateInstance.name}`,
  `${InstanceServiceDefinition.fullName}/${InstanceServiceDefinition.methods.attach.name}`,
  `${HandoverDefinition.fullName}/${HandoverDefinition.methods.move.name}`,
]
const TOLD_MS = 5000

/** Clients that attach have a stream each. */
const HOST_LIMITS = {
  ...LIMITS,
  total: { ...LIMITS.total, streams: { limit: 2048, reserve: 0 } },
  connection: { streams: 128 },
}

export function openApi({ instances, secrets, journal, tenants, templates, only, log }: ApiParts): Api {
  const nowMs = () => performance.now()
  const sockets = new ApiSockets({ log, readDescriptors })
  const calls = new HostCalls(nowMs)
  const declared = [
    ...methodsOf(InstanceServiceDefinition, instanceMethods({ instances, calls, tenants, templates, only })),
    ...methodsOf(SecretServiceDefinition, secretMethods(secrets)),
    ...methodsOf(OOBManagementDefinition, outOfBandMethods(instances, only?.name)),
    ...methodsOf(HypervisorDefinition, hypervisorMethods(instances)),
    ...methodsOf(HandoverDefinition, handoverMethods(instances, tenants)),
    ...(only === undefined ? methodsOf(VMControllerDefinition, controllerMethods()) : []),
  ]
  const stopping = new AbortController()
  const context = { calls, journal, log, nowMs, stopping: stopping.signal }
  return {
    listen: async (path, tenant) => {
      const totals = new Totals(HOST_LIMITS)
      const tables = servedTables(declared, { ...context, totals }, { tenant: tenant?.name })
      const peer = tenant === undefined ? 'admin' : `tenant ${tenant.name}`
      await sockets.listen({ path, uid: tenant?.uid, peer, totals, tables })
    },
    listenForHosts: async (endpoint, credentials) => {
      const totals = new Totals(HOST_LIMITS)
      const serve = (socket: Socket, peer: Peer) => {
        const tables = servedTables(declared, { ...context, totals }, { peer })
        sockets.serve(socket, { peer: `${peer.role} ${peer.id}`, totals, tables, checkCall: healthOnly })
      }
      sockets.add(await listenForHosts(endpoint, { credentials, log, serve }))
    },
    told: () => calls.untilEnded(TOLD, AbortSignal.timeout(TOLD_MS)),
    close: () => {
      stopping.abort(new AgentError('UNAVAILABLE', 'the daemon stops'))
      return sockets.close()
    },
  }
}

const healthOnly: CheckCall = async (method) =>
  method.startsWith(`${HealthDefinition.fullName}/`)
    ? undefined
    : { ok: false, code: 'PERMISSION_DENIED', message: `${method}: not for other hosts` }

/** The set of all descriptors lies beside the code, in the sources and in a bundle. */
async function readDescriptors(): Promise<Uint8Array> {
  return readFile(join(import.meta.dirname, '../../gen/descriptors.binpb'))
}
