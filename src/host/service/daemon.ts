import { once } from 'node:events'
import { access, constants } from 'node:fs/promises'
import { hostname } from 'node:os'
import { join } from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import { setFlagsFromString } from 'node:v8'
import packageJson from '../../../package.json' with { type: 'json' }
import { AgentError, errnoOf, messageOf } from '../../base/errors.ts'
import type { Logger } from '../../base/log.ts'
import { startTimer } from '../../rpc/timer.ts'
import type { SpanQueue } from '../../rpc/tracing/span-queue.ts'
import type { Caller, Instances } from '../instance/instances.ts'
import type { MovesHost } from '../instance/open-host-instances.ts'
import { memoryRegistry } from '../instance/registry/memory-registry.ts'
import type { RebuildReport } from '../instance/registry/rebuild.ts'
import type { Registry } from '../instance/registry/registry.ts'
import type { AtStep } from '../migration/faults.ts'
import type { MoveController } from '../migration/move/move-host.ts'
import type { Spans } from '../migration/move-figures.ts'
import type { Templates } from '../migration/templates.ts'
import { openSecrets, type Secrets } from '../secrets/secrets.ts'
import { readCredentials } from '../tls/credentials.ts'
import { checkFolderLength, makeFolder, makeOwnFolder, makeSocketFolder } from './api-sockets.ts'
import { CallJournal } from './call-journal.ts'
import { type Configuration, DEFAULT_TEMPLATES, quotasOf } from './configuration.ts'
import { type OpenHost, openHost, type RegisteredFacts } from './hosts/open-host.ts'
import type { OnlyMachine } from './hypervisor/only-machine.ts'
import { podId } from './hypervisor/run-id.ts'
import { MockInstances } from './mock-instances.ts'
import { openApi } from './open-api.ts'
import { openFolders } from './tenant-rules.ts'

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
  /** For a hypervisor, whose only machine ends with it. */
  readonly only?: OnlyMachine | undefined
  /** In place of those that the configuration names. */
  readonly controller?: MoveController | undefined
  /** How long the end of the daemon waits for moves that are under way. */
  readonly settleMs?: number
  /** Called before each step of a move; tests let it fail there. */
  readonly atStep?: AtStep | undefined
  readonly log: Logger
}

export interface Daemon {
  /** The administrator's socket. */
  readonly socket: string
  readonly instances: Instances
  /** As of `told` of the API. */
  told(): Promise<void>
  /** Tells the controllers that the machine of a hypervisor runs nowhere, so that it may be started anywhere; tries it for 5 s. */
  release(): Promise<void>
  /** Stops serving. The instances go on. */
  close(): Promise<void>
}

/** Serves the instances of the state folder. Throws FAILED_PRECONDITION, in one sentence, when it cannot. */
export async function startDaemon(options: DaemonOptions): Promise<Daemon> {
  const { stateFolder, log } = options
  // A mock has no sockets of instances.
  if (!options.mock) checkFolderLength(stateFolder, '--state DIR')
  await checkStateFolder(stateFolder)
  await makeOwnFolder(stateFolder)
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

/** A move that its caller has left is undone in less. */
const SETTLE_MS = 10_000

interface Part {
  readonly name: string
  readonly close: () => Promise<void> | void
}

async function compose(options: DaemonOptions, parts: Part[]): Promise<Daemon> {
  const { stateFolder, configuration, log, socket = join(stateFolder, 'admin.sock') } = options
  const { host, tenants } = configuration
  const credentials = host && (await readCredentials(host))
  const registry = await openRegistry(options)
  parts.unshift({ name: 'registry', close: () => registry.close() })
  const { only } = options
  if (only !== undefined) await refuseOthers(registry, stateFolder, only.name)
  // Not before: another daemon may have the folder, whose tenants must still reach it.
  await makeSocketFolder(stateFolder, tenants.length > 0)
  // Steps of the clock must not make a call old that is being repeated.
  const timeMs = () => Math.round(performance.timeOrigin + performance.now())
  const journal = await CallJournal.open({ registry, nowMs: timeMs, log })
  const secrets = await openSecrets(join(stateFolder, 'secrets'))
  const among =
    host &&
    credentials &&
    openHost({
      settings: host,
      credentials,
      stateFolder,
      registry,
      only: only && { ...only, podId: await podId(stateFolder) },
      log,
      controller: options.controller,
    })
  parts.unshift({ name: 'host', close: () => among?.close() })
  const spans = await openSpans(options)
  parts.unshift({ name: 'spans', close: () => spans?.stop() })
  const { facts, instances, templates } = await openInstances(options, {
    ...{ registry, secrets, spans },
    host: among,
  })
  parts.unshift({ name: 'instances', close: () => instances.close() })
  const { settleMs = SETTLE_MS } = options
  const settled = () => Promise.race([instances.move.settled(), delay(settleMs, undefined, { ref: false })])
  parts.unshift({ name: 'moves', close: settled })
  parts.unshift({ name: 'templates', close: () => templates?.close() })
  parts.unshift({ name: 'journal', close: () => journal.close() })
  const stopLogging = logChanges(instances, log)
  parts.unshift({ name: 'log of changes', close: stopLogging })
  const api = openApi({ instances, secrets, journal, tenants, templates, only, log })
  parts.unshift({ name: 'sockets', close: () => api.close() })
  await api.listen(socket)
  // The start has run without the optimizing compiler (src/build/node-flags.mjs).
  setFlagsFromString('--opt')
  if (only?.listen !== undefined) await api.listen(only.listen)
  await only?.prepare(instances)
  if (credentials !== undefined && host !== undefined) await api.listenForHosts(host.listen, credentials)
  if (tenants.length > 0) await makeSocketFolder(join(stateFolder, 'tenants'), true)
  for (const tenant of tenants) await api.listen(join(stateFolder, 'tenants', `${tenant.name}.sock`), tenant)
  for (const folder of await openFolders(tenants))
    log.warn('folder of a tenant not used', { folder, reason: 'others can replace what is in it' })
  if (facts !== undefined) among?.register(facts)
  log.info('serving', { socket, tenants: tenants.length, mock: options.mock })
  return {
    socket,
    instances,
    told: () => api.told(),
    release: async () => await among?.release(),
    close: () => closeAll(parts, log),
  }
}

/** A mock loads nothing of SQLite and of machines. */
async function openRegistry({ mock, rebuild = false, stateFolder, log }: DaemonOptions): Promise<Registry> {
  if (mock) return memoryRegistry()
  const { openRegistry: open, rebuildRegistry } = await import('../instance/registry/open-registry.ts')
  if (rebuild) logRebuild(await rebuildRegistry(stateFolder), log)
  return await open(stateFolder)
}

/** Loads what sends spans only where the configuration names a collector. */
async function openSpans({ configuration, log }: DaemonOptions): Promise<SpanQueue | undefined> {
  const { host, otlpEndpoint } = configuration
  if (otlpEndpoint === undefined) return undefined
  const { otlpSink } = await import('../../rpc/tracing/otlp-sink.ts')
  const { SpanQueue: Queue } = await import('../../rpc/tracing/span-queue.ts')
  const { version } = packageJson
  const service = { name: 'microvm-daemon', version, host: host?.id ?? hostname() }
  return new Queue(otlpSink(otlpEndpoint, service), { log, startTimer })
}

/** A hypervisor removes what it finds in its folder. */
async function refuseOthers(registry: Registry, stateFolder: string, key: string): Promise<void> {
  const other = [...(await registry.load('instances')).keys()].find((each) => each !== key)
  if (other === undefined) return
  throw new AgentError(
    'FAILED_PRECONDITION',
    `state folder ${stateFolder}: has instance ${other}, want a folder for ${key} alone`,
  )
}

function logRebuild({ instances, unreadable, keptAside, lost }: RebuildReport, log: Logger): void {
  for (const { path, reason } of unreadable) log.error('specification not read', { path, error: reason })
  log.warn('registry made anew', { instances: instances.length, keptAside, lost })
}

async function openInstances(
  options: DaemonOptions,
  {
    host,
    registry,
    secrets,
    spans,
  }: {
    readonly registry: Registry
    readonly secrets: Secrets
    readonly host: OpenHost | undefined
    readonly spans: Spans | undefined
  },
): Promise<{
  readonly instances: Instances
  readonly templates?: Templates | undefined
  readonly facts?: () => Promise<RegisteredFacts>
}> {
  const quotas = quotasOf(options.configuration.tenants)
  if (options.mock) return { instances: new MockInstances({ quotas }) }
  const { openHostInstances } = await import('../instance/open-host-instances.ts')
  const { hostFacts, openMigration } = await import('../migration/migration.ts')
  const { openTemplates } = await import('../migration/templates.ts')
  const { stateFolder, log, acceleration } = options
  const { uids, catalogue, templates: limit = DEFAULT_TEMPLATES } = options.configuration
  const isLeashed = options.only !== undefined
  let moves: MovesHost | undefined
  const instances = await openHostInstances({
    stateFolder,
    registry,
    secrets,
    log,
    acceleration,
    quotas,
    uids,
    catalogue,
    isLeashed,
    leases: host?.leases && {
      ...{ id: host.among.id, only: host.among.only, nextRunId: host.among.nextRunId },
      controller: host.leases,
      volumes: host.volumes,
    },
    // A hypervisor's machine ends with it, and is saved nowhere.
    openMoves:
      isLeashed && host === undefined
        ? undefined
        : (facts) => {
            moves = facts
            return openMigration({ ...facts, spans, among: host?.among }, options.atStep)
          },
  })
  if (moves === undefined) return { instances }
  const facts = moves
  const registered = async () => ({ ...(await hostFacts(facts)), cpuModels: await facts.cpuModels() })
  if (isLeashed) return { instances, facts: registered }
  const templates = openTemplates({ instances, stateFolder, host: () => hostFacts(facts), limit, log })
  return { instances, templates, facts: registered }
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
