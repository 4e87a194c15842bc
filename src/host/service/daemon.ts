import { once } from 'node:events'
import { access, constants, readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { AgentError, errnoOf, messageOf } from '../../base/errors.ts'
import type { Logger } from '../../base/log.ts'
import { InstanceServiceDefinition } from '../../gen/microvm/instance/v1/instance.ts'
import { HypervisorDefinition, OOBManagementDefinition, VMControllerDefinition } from '../../gen/vm.ts'
import { LIMITS, Totals } from '../../rpc/limits.ts'
import type { Caller, Instances } from '../instance/instances.ts'
import { MAX_STATE_FOLDER_BYTES } from '../instance/limits.ts'
import { memoryRegistry } from '../instance/registry/memory-registry.ts'
import type { RebuildReport } from '../instance/registry/rebuild.ts'
import type { Registry } from '../instance/registry/registry.ts'
import { ApiSockets, makeFolder, makeSocketFolder } from './api-sockets.ts'
import { CallJournal } from './call-journal.ts'
import { type Configuration, quotasOf } from './configuration.ts'
import { HostCalls } from './host-calls.ts'
import { instanceMethods } from './instance-methods.ts'
import { MockInstances } from './mock-instances.ts'
import { methodsOf } from './rpc.ts'
import { servedTables } from './serve.ts'
import { openFolders } from './tenant-rules.ts'
import { controllerMethods, hypervisorMethods, outOfBandMethods } from './vm-methods.ts'

export interface DaemonOptions {
  readonly stateFolder: string
  /** The administrator's socket; `admin.sock` in the state folder by default. */
  readonly socket?: string | undefined
  readonly configuration: Configuration
  /** Instances without machines, and nothing that outlives the daemon. */
  readonly mock: boolean
  /** Makes the registry anew from what the instances have left in their folders. */
  readonly rebuild?: boolean
  /** MICROVM_ACCEL. */
  readonly acceleration?: string | undefined
  readonly log: Logger
}

export interface Daemon {
  /** The administrator's socket. */
  readonly socket: string
  readonly instances: Instances
  /** Stops serving. The instances go on. */
  close(): Promise<void>
}

/** Clients that attach have a stream each. */
const HOST_LIMITS = {
  ...LIMITS,
  total: { ...LIMITS.total, streams: { limit: 2048, reserve: 0 } },
  connection: { streams: 128 },
}

/** Serves the instances of the state folder. Throws FAILED_PRECONDITION, in one sentence, when it cannot. */
export async function startDaemon(options: DaemonOptions): Promise<Daemon> {
  const { stateFolder, configuration, log } = options
  if (!options.mock) checkLength(stateFolder)
  await checkStateFolder(stateFolder)
  const hasTenants = configuration.tenants.length > 0
  await makeSocketFolder(stateFolder, hasTenants)
  const parts: Part[] = []
  try {
    return await compose(options, parts)
  } catch (error) {
    await closeAll(parts, log)
    throw error
  }
}

/** Runs a daemon until SIGTERM or SIGINT. Calls `onReady` once it serves. */
export async function runDaemon(
  options: DaemonOptions & { readonly onReady?: (daemon: Daemon) => void },
): Promise<void> {
  const daemon = await startDaemon(options)
  options.onReady?.(daemon)
  const signal = await Promise.race(['SIGTERM', 'SIGINT'].map((name) => once(process, name).then(() => name)))
  options.log.info('stopping', { reason: signal })
  await daemon.close()
}

interface Part {
  readonly name: string
  readonly close: () => Promise<void> | void
}

async function compose(options: DaemonOptions, parts: Part[]): Promise<Daemon> {
  const { stateFolder, configuration, log, socket = join(stateFolder, 'admin.sock') } = options
  const { tenants } = configuration
  const nowMs = () => performance.now()
  const sockets = new ApiSockets({ log, readDescriptors })
  const registry = await openRegistry(options)
  parts.unshift({ name: 'registry', close: () => registry.close() })
  // Steps of the clock must not make a call old that is being repeated.
  const timeMs = () => Math.round(performance.timeOrigin + performance.now())
  const journal = await CallJournal.open({ registry, nowMs: timeMs, log })
  const instances = await openInstances(options, registry)
  parts.unshift({ name: 'instances', close: () => instances.close() })
  parts.unshift({ name: 'journal', close: () => journal.close() })
  const stopLogging = logChanges(instances, log)
  parts.unshift({ name: 'log of changes', close: stopLogging })
  const calls = new HostCalls(nowMs)
  const declared = [
    ...methodsOf(InstanceServiceDefinition, instanceMethods({ instances, calls, tenants })),
    ...methodsOf(OOBManagementDefinition, outOfBandMethods(instances)),
    ...methodsOf(HypervisorDefinition, hypervisorMethods()),
    ...methodsOf(VMControllerDefinition, controllerMethods()),
  ]
  const stopping = new AbortController()
  const context = { calls, journal, log, nowMs, stopping: stopping.signal }
  const served = (tenant: string | undefined) => {
    const totals = new Totals(HOST_LIMITS)
    return { totals, tables: servedTables(declared, { ...context, totals }, tenant) }
  }
  const close = () => {
    stopping.abort(new AgentError('UNAVAILABLE', 'the daemon stops'))
    return sockets.close()
  }
  parts.unshift({ name: 'sockets', close })
  await sockets.listen({ path: socket, uid: undefined, peer: 'admin', ...served(undefined) })
  if (tenants.length > 0) await makeSocketFolder(join(stateFolder, 'tenants'), true)
  for (const { name, uid } of tenants) {
    const path = join(stateFolder, 'tenants', `${name}.sock`)
    await sockets.listen({ path, uid, peer: `tenant ${name}`, ...served(name) })
  }
  for (const folder of await openFolders(tenants))
    log.warn('folder of a tenant not used', { folder, reason: 'others can replace what is in it' })
  log.info('serving', { socket, tenants: tenants.length, mock: options.mock })
  return { socket, instances, close: () => closeAll(parts, log) }
}

/** A mock loads nothing of SQLite and of machines. */
async function openRegistry({ mock, rebuild = false, stateFolder, log }: DaemonOptions): Promise<Registry> {
  if (mock) return memoryRegistry()
  const { openRegistry: open, rebuildRegistry } = await import('../instance/registry/open-registry.ts')
  if (rebuild) logRebuild(await rebuildRegistry(stateFolder), log)
  return await open(stateFolder)
}

function logRebuild({ instances, unreadable, keptAside, lost }: RebuildReport, log: Logger): void {
  for (const { path, reason } of unreadable) log.error('specification not read', { path, error: reason })
  log.warn('registry made anew', { instances: instances.length, keptAside, lost })
}

async function openInstances(options: DaemonOptions, registry: Registry): Promise<Instances> {
  const quotas = quotasOf(options.configuration.tenants)
  if (options.mock) return new MockInstances({ quotas })
  const { openHostInstances } = await import('../instance/open-host-instances.ts')
  const { stateFolder, log, acceleration } = options
  const { uids } = options.configuration
  return await openHostInstances({ stateFolder, registry, log, acceleration, quotas, uids })
}

async function closeAll(parts: readonly Part[], log: Logger): Promise<void> {
  for (const { name, close } of parts) {
    try {
      await close()
    } catch (error) {
      log.error('not closed', { part: name, error: messageOf(error) })
    }
  }
}

/** The set of all descriptors lies beside the code, in the sources and in a bundle. */
async function readDescriptors(): Promise<Uint8Array> {
  return readFile(join(import.meta.dirname, '../../gen/descriptors.binpb'))
}

/** Instances have sockets in the folder; a mock has none. */
function checkLength(path: string): void {
  const bytes = Buffer.byteLength(path)
  if (bytes <= MAX_STATE_FOLDER_BYTES) return
  throw new AgentError(
    'FAILED_PRECONDITION',
    `state folder ${path}: ${bytes} bytes, want at most ${MAX_STATE_FOLDER_BYTES} for the sockets in it (--state DIR)`,
  )
}

async function checkStateFolder(path: string): Promise<void> {
  try {
    await makeFolder(path)
    await access(`${path}/.`, constants.W_OK | constants.X_OK)
  } catch (error) {
    throw new AgentError(
      'FAILED_PRECONDITION',
      `state folder ${path}: ${errnoOf(error) ?? messageOf(error)}, want a folder that this user can write (--state DIR)`,
      { cause: error },
    )
  }
}

/** Writes a line for each change that this daemon makes or sees. Returns the function that ends this. */
function logChanges(instances: Instances, log: Logger): () => Promise<void> {
  const ended = new AbortController()
  const caller: Caller = { tenant: undefined, signal: ended.signal, inStep: () => {} }
  const work = async () => {
    for await (const { changes } of instances.watch({ after: 0n, once: false }, caller)) {
      for (const { key, tenant, kind, text, sequence } of changes)
        log.info('instance', { key, tenant: tenant || undefined, kind, text, sequence })
    }
  }
  const logging = work().catch((error) => {
    if (!ended.signal.aborted) log.error('changes not logged', { error: messageOf(error) })
  })
  return () => {
    ended.abort()
    return logging
  }
}
