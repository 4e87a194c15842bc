import { AgentError } from '../../base/errors.ts'
import {
  type AllocatePortRequest,
  ChangeStateRequest_Change as Change,
  type ConnectAgentRequest,
  type EnsureInstanceRequest,
  type InstanceServiceDefinition,
  type MigrationTarget,
  type RemoveRequest,
  type RemoveResponse,
} from '../../gen/microvm/instance/v1/instance.ts'
import type { Instances } from '../instance/instances.ts'
import { TEMPLATE_NAME } from '../instance/moves.ts'
import { cloned, type Templates } from '../migration/templates.ts'
import { specKey } from '../spec/spec-key.ts'
import { TENANT_NAME, type Tenant } from './configuration.ts'
import type { HostCalls } from './host-calls.ts'
import { moveMethods } from './hosts/move-methods.ts'
import { type OnlyMachine, ofOnly } from './hypervisor/only-machine.ts'
import type { ServiceCall, ServiceMethods } from './rpc.ts'
import { checkedSaved, savedMethods } from './snapshots/saved-methods.ts'
import { checkOwner, snapshotMethods } from './snapshots/snapshot-methods.ts'
import { templateMethods } from './template-methods.ts'
import { checkTenantBackend, checkTenantSpecification } from './tenant-rules.ts'

export interface ServiceContext {
  readonly instances: Instances
  readonly calls: Pick<HostCalls, 'list' | 'metrics'>
  readonly tenants: readonly Tenant[]
  /** Where machines are saved. */
  readonly templates?: Templates | undefined
  /** Of a hypervisor. */
  readonly only?: OnlyMachine | undefined
}

/** What each RPC is, who may call it, and what becomes of it when the daemon dies. */
export function instanceMethods(context: ServiceContext): ServiceMethods<typeof InstanceServiceDefinition> {
  const { instances, calls } = context
  return {
    ensureInstance: {
      ...IDEMPOTENT,
      ...BY_CONTROLLER,
      handle: (request, call) => ensure(context, request, call),
    },
    expand: { ...READ, handle: async (request, call) => instances.expand(request, call) },
    getInstance: {
      ...READ,
      ...BY_CONTROLLER,
      handle: async ({ key }, call) => instances.get(specKey(key), call),
    },
    listInstances: { ...READ, handle: async (_request, call) => ({ instances: [...instances.list(call)] }) },
    watchInstances: { ...READ, handleStream: (request, call) => instances.watch(request, call) },
    // Journaled for RESET: a machine is reset again.
    changeState: {
      ...JOURNALED,
      frees: ({ change }) => change === Change.STOP || change === Change.KILL,
      handle: async (request, call) => instances.changeState(checkedChange(keyed(timed(request))), call),
    },
    replaceBackend: {
      ...IDEMPOTENT,
      handle: async (request, call) => {
        const { backend, backendKey, source } = request
        if (backend === undefined && source === undefined) throw invalid('backend: missing')
        if (backend !== undefined && source !== undefined) throw invalid('source: beside backend, want one')
        const tenant = tenantOf(context, call)
        if (tenant && backend) await checkTenantBackend(tenant, 'backend', backend)
        return instances.replaceBackend({ ...keyed(request), backendKey: specKey(backendKey) }, call)
      },
    },
    plug: {
      ...IDEMPOTENT,
      handle: async (request, call) => {
        const { device, backend, deviceKey, features } = request
        if (device === undefined && features === undefined) throw invalid('device: missing')
        const tenant = tenantOf(context, call)
        if (tenant && backend) await checkTenantBackend(tenant, 'backend', backend)
        return instances.plug({ ...keyed(request), deviceKey: specKey(deviceKey) }, call)
      },
    },
    unplug: {
      ...IDEMPOTENT,
      handle: async (request, call) =>
        instances.unplug({ ...keyed(timed(request)), deviceKey: specKey(request.deviceKey) }, call),
    },
    ...snapshotMethods(context),
    ...savedMethods(context),
    ...templateMethods(context.templates),
    ...moveMethods(instances),
    // Journaled, because an instance that is gone is not found.
    remove: {
      ...JOURNALED,
      remote: ['controller', 'host'],
      frees: () => true,
      handle: (request, call) => remove(instances, request, call),
    },

    ...streamMethods(instances),

    listCalls: { ...READ, handle: async (_request, call) => ({ calls: calls.list(call.tenant) }) },
    // The figures are of all tenants.
    getMetrics: {
      ...READ,
      role: 'admin',
      handle: async () => ({ text: `${instances.metrics()}${calls.metrics()}` }),
    },
  }
}

type StreamName = 'allocatePort' | 'attach' | 'listStreams' | 'connectAgent'

function streamMethods(
  instances: Instances,
): Pick<ServiceMethods<typeof InstanceServiceDefinition>, StreamName> {
  return {
    // Journaled, because each call takes another port.
    allocatePort: {
      ...JOURNALED,
      handle: async (request, call) => {
        checkStream(request)
        return instances.allocatePort(keyed(request), call)
      },
    },
    attach: { ...READ, handleStream: (request, call) => attach(instances, request, call) },
    listStreams: {
      ...READ,
      handle: async ({ key }, call) => ({ streams: [...(await instances.streams(specKey(key), call))] }),
    },
    connectAgent: {
      ...READ,
      remote: ['host'],
      handleDuplex: (requests, call) => connectAgent(instances, requests, call),
    },
  }
}

const READ = { role: 'owner', onDaemonDeath: 'read' } as const
const IDEMPOTENT = { role: 'owner', onDaemonDeath: 'idempotent' } as const
const JOURNALED = { role: 'owner', onDaemonDeath: 'journaled' } as const

/** Makes the targets of moves, and removes them. */
const BY_CONTROLLER = { remote: ['controller'] } as const

const STREAMS = ['stdin', 'stdout', 'stderr']

/** For a guest that is to stop, or to let a device go: the instance's other changes wait meanwhile. */
const MAX_GRACE_MS = 3_600_000

/** Of an instance, in every list of instances. */
const MAX_LABELS_BYTES = 64 * 1024

/** Bytes of one message of a stream of bytes. */
const PIECE_BYTES = 1024 * 1024

async function ensure(
  context: ServiceContext,
  request: EnsureInstanceRequest,
  call: ServiceCall,
): ReturnType<Instances['ensure']> {
  const checked = await checkedEnsure(context, request, call)
  const ensured = () =>
    context.instances.ensure(checked, call, (owner, specification) =>
      checkOwner(context.tenants, owner, specification),
    )
  const { properties: { tenant = '' } = {}, saved: { name = '' } = {} } = checked
  return await cloned(context.templates, { name, tenant }, ensured)
}

async function remove(
  instances: Instances,
  { key }: RemoveRequest,
  call: ServiceCall,
): Promise<RemoveResponse> {
  const { peer } = call
  // A controller that has chosen another target, or a source that has given its move up before it was handed over.
  const removed =
    peer === undefined
      ? instances.remove(specKey(key), call)
      : instances.move.giveUpTarget(specKey(key), peer.role === 'host' ? peer.id : undefined)
  await removed.catch((error) => {
    if (call.isRepeated !== true || !isNotFound(error)) throw error
  })
  return {}
}

async function checkedEnsure(
  context: ServiceContext,
  given: EnsureInstanceRequest,
  call: ServiceCall,
): Promise<EnsureInstanceRequest> {
  const request = context.only === undefined ? given : ofOnly(context.only, given)
  const { properties, specification, migrationTarget, document, saved } = request
  if (properties === undefined) throw invalid('properties: missing')
  if (call.peer !== undefined && migrationTarget === undefined)
    throw new AgentError(
      'PERMISSION_DENIED',
      `migration_target: missing, want it of ${call.peer.role} ${call.peer.id}`,
    )
  const key = specKey(properties.key)
  const tenant = tenantOf(context, call)
  if (tenant !== undefined && properties.tenant !== '' && properties.tenant !== tenant.name)
    throw new AgentError(
      'PERMISSION_DENIED',
      `properties.tenant: ${JSON.stringify(properties.tenant)}, want ${JSON.stringify(tenant.name)} or none on this socket`,
    )
  if (properties.tenant !== '' && !TENANT_NAME.test(properties.tenant))
    throw invalid(`properties.tenant: ${JSON.stringify(properties.tenant)} is no name of a tenant`)
  if (TEMPLATE_NAME.test(key))
    throw invalid(`properties.key: ${key}: templates are called so, want another one`)
  checkLabels(properties.labels)
  const all = { specification, migrationTarget, document, saved }
  const [init, ...others] = Object.entries(all).flatMap(([name, value]) =>
    value === undefined ? [] : [name],
  )
  if (init === undefined) throw invalid('specification: missing, want it or a document')
  if (others.length > 0) throw invalid(`${others[0]}: given with a ${init}, want one of them`)
  const checked = saved && (await checkedSaved(tenant, saved))
  if (migrationTarget !== undefined) checkTarget(tenant, migrationTarget)
  if (tenant !== undefined && specification !== undefined)
    await checkTenantSpecification(tenant, specification)
  return {
    ...request,
    saved: checked,
    properties: { ...properties, key, tenant: tenant?.name ?? properties.tenant },
  }
}

const MAX_SOURCE = 256

/** Where a machine goes is the administrator's matter. */
function checkTarget(tenant: Tenant | undefined, { source }: MigrationTarget): void {
  if (tenant !== undefined)
    throw new AgentError('PERMISSION_DENIED', 'migration_target: for the administrator only')
  if (source === '' || source.length > MAX_SOURCE)
    throw invalid(`migration_target.source: want 1 to ${MAX_SOURCE} characters`)
}

function checkLabels(labels: Readonly<Record<string, string>>): void {
  const texts = Object.entries(labels).flat()
  const bytes = texts.reduce((sum, text) => sum + Buffer.byteLength(text), 0)
  if (bytes > MAX_LABELS_BYTES)
    throw invalid(`properties.labels: ${bytes} bytes, want at most ${MAX_LABELS_BYTES}`)
}

function tenantOf({ tenants }: Pick<ServiceContext, 'tenants'>, { tenant }: ServiceCall): Tenant | undefined {
  if (tenant === undefined) return undefined
  const known = tenants.find(({ name }) => name === tenant)
  if (known === undefined) throw new Error(`tenant ${tenant}: not configured`)
  return known
}

function keyed<Request extends { readonly key: string }>(request: Request): Request {
  return { ...request, key: specKey(request.key) }
}

function timed<Request extends { readonly graceMs: number }>(request: Request): Request {
  const { graceMs } = request
  if (graceMs <= MAX_GRACE_MS) return request
  throw invalid(`grace_ms: ${graceMs}, want at most ${MAX_GRACE_MS}`)
}

function checkedChange<Request extends { readonly change: number }>(request: Request): Request {
  const { change } = request
  if (change !== Change.CHANGE_UNSPECIFIED && Object.values<number>(Change).includes(change)) return request
  throw invalid(`change: ${change}, want RUN, PAUSE, RESET, STOP or KILL`)
}

function checkStream({ container, exec, stream }: AllocatePortRequest): void {
  if (!STREAMS.includes(stream))
    throw invalid(`stream: ${JSON.stringify(stream)}, want ${STREAMS.join(', ')}`)
  checkId('container', container)
  if (exec !== '') checkId('exec', exec)
}

/** Of the same form as in the agent. */
function checkId(name: string, id: string): void {
  if (!/^[A-Za-z0-9][A-Za-z0-9_.-]{0,127}$/.test(id))
    throw invalid(
      `${name}: ${JSON.stringify(id.slice(0, 128))} is no id, want 1 to 128 of A-Z, a-z, 0-9, _ . -`,
    )
}

async function* attach(
  instances: Instances,
  request: Parameters<Instances['attach']>[0],
  call: ServiceCall,
): ReturnType<Instances['attach']> extends AsyncIterable<infer Answer>
  ? AsyncGenerator<Answer, void>
  : never {
  for await (const { offset, data, moved } of instances.attach(keyed(request), call)) {
    if (moved !== undefined) yield { offset, data, moved }
    let at = offset
    for (const piece of pieces(data)) {
      yield { offset: at, data: piece, moved: undefined }
      at += BigInt(piece.length)
    }
  }
}

async function* connectAgent(
  instances: Instances,
  requests: AsyncIterable<ConnectAgentRequest>,
  call: ServiceCall,
): AsyncGenerator<{ readonly data: Uint8Array }, void> {
  const incoming = requests[Symbol.asyncIterator]()
  const first = await incoming.next()
  if (first.done === true) throw invalid('key: missing, want it in the first message')
  const key = specKey(first.value.key)
  const input = async function* () {
    if (first.value.data.length > 0) yield first.value.data
    for (let next = await incoming.next(); next.done !== true; next = await incoming.next()) {
      if (next.value.key !== '') throw invalid('key: given again, want it in the first message only')
      yield next.value.data
    }
  }
  const { hosts, tenant } = first.value
  const passed = call.peer && { host: call.peer.id, hosts }
  // A host calls as the administrator, and passes on callers of one owner's machine.
  const caller = passed === undefined ? call : { ...call, tenant }
  for await (const data of instances.connectAgent(key, input(), caller, passed))
    for (const piece of pieces(data)) yield { data: piece }
}

export function* pieces(data: Uint8Array): Generator<Uint8Array, void> {
  for (let at = 0; at < data.length; at += PIECE_BYTES) yield data.subarray(at, at + PIECE_BYTES)
}

function isNotFound(error: unknown): boolean {
  return error instanceof AgentError && error.code === 'NOT_FOUND'
}

export function invalid(message: string): AgentError {
  return new AgentError('INVALID_ARGUMENT', message)
}
