import { neverAborted } from '../../../base/abort.ts'
import { AgentError, messageOf } from '../../../base/errors.ts'
import type { Logger } from '../../../base/log.ts'
import { SerialQueue } from '../../../base/serial-queue.ts'
import { HandoverDefinition } from '../../../gen/microvm/instance/v1/handover.ts'
import { clientFor } from '../../../rpc/client.ts'
import { openController } from '../../controller/client.ts'
import type { LeaseController } from '../../instance/leases/machine-lease.ts'
import type { VolumesHost } from '../../instance/leases/volumes.ts'
import type { OnlyVm } from '../../instance/moving/only-vm.ts'
import type { Registry } from '../../instance/registry/registry.ts'
import type { HostFacts } from '../../migration/manifest.ts'
import { MOVE_SETTINGS, type MoveController, type MoveHost } from '../../migration/move/move-host.ts'
import type { Credentials } from '../../tls/credentials.ts'
import { dialHost } from '../../tls/dial-host.ts'
import { endpointText, parseEndpoint } from '../../tls/endpoint.ts'
import { nextRunId } from '../hypervisor/run-id.ts'
import type { HostSettings } from './host-settings.ts'
import { registerHost } from './register-host.ts'

/** What controllers choose a host by. */
export interface RegisteredFacts extends HostFacts {
  /** That QEMU gives whole on this host. */
  readonly cpuModels: readonly string[]
}

export interface OpenHost {
  readonly among: MoveHost
  /** Undefined without controllers. */
  readonly leases: LeaseController | undefined
  /** Of this host, for the machines of others. */
  readonly volumes: Pick<VolumesHost, 'address' | 'folders' | 'identity' | 'listen'>
  /** Says to the controllers that this host is there, until it is closed. */
  register(facts: () => Promise<RegisteredFacts>): void
  /** As of a hypervisor's `Daemon`. */
  release(): Promise<void>
  /** Ends the calls to controllers, and all waits for them. */
  close(): void
}

/** This host among others. */
export function openHost(options: {
  readonly settings: HostSettings
  readonly credentials: Credentials
  readonly stateFolder: string
  /** In place of those that the settings name. */
  readonly controller?: MoveController | undefined
  readonly registry: Registry
  /** Of a hypervisor. */
  readonly only?: OnlyVm | undefined
  readonly log: Logger
}): OpenHost {
  const { credentials, log, only, settings, stateFolder } = options
  const closing = new AbortController()
  const runIds = new SerialQueue()
  const draining = new Draining(options.registry)
  const dial: MoveHost['dial'] = async (text, name, signal) => {
    const endpoint = parseEndpoint(text)
    if (endpoint === undefined) throw new AgentError('FAILED_PRECONDITION', `host ${name}: no endpoint`)
    return await dialHost(endpoint, { name, credentials, signal })
  }
  const client = options.controller === undefined ? controllerOf(settings, credentials, dial) : undefined
  const among: MoveHost = {
    id: settings.id,
    only,
    endpoint: endpointText(settings.advertise),
    address: settings.listen.host,
    isDirect: settings.listen.host === settings.advertise.host,
    identity: credentials.files,
    controller: options.controller ?? client?.controller ?? NO_CONTROLLER,
    dial,
    drain: (isDraining) => draining.set(isDraining),
    nextRunId: () => runIds.run(() => nextRunId(stateFolder, nowNs()), neverAborted),
    closing: closing.signal,
    settings: MOVE_SETTINGS,
  }
  return {
    among,
    leases: client?.leases,
    volumes: {
      ...{ address: settings.advertise.host, listen: settings.listen.host },
      ...{ folders: settings.volumes, identity: credentials.files },
    },
    register: (facts) => {
      if (client === undefined) return
      const { id, networks, sharedFolders } = settings
      const describe = async () => {
        const { cpu, cpuModels, qemu } = await facts()
        const qemuVersion = qemu.replace(/^QEMU /, '')
        // A hypervisor takes its machine again whatever an earlier one has moved away.
        const isDraining = only === undefined && (await draining.get())
        const onlyVm = only === undefined ? '' : `${only.namespace}/${only.name}`
        const own = { id, endpoint: among.endpoint, qemuVersion, cpu, cpuModels: [...cpuModels] }
        const places = { networks: [...networks], sharedFolders: [...sharedFolders] }
        return { ...own, ...places, onlyVm, draining: isDraining }
      }
      const changed = () => draining.changed()
      void registerHost(client, { describe, changed, log, signal: closing.signal })
    },
    release: async () => {
      if (client === undefined || only === undefined) return
      const calling = { signal: AbortSignal.timeout(RELEASE_MS) }
      try {
        const { authoritative: us } = await client.service.getVm(only, calling)
        if (us?.podName === `${settings.id}/${only.podId}`) await client.service.removeVm({ us }, calling)
      } catch (error) {
        log.warn('controllers not told that the machine runs nowhere', { error: messageOf(error) })
      }
    },
    close: () => {
      closing.abort(new AgentError('UNAVAILABLE', 'the daemon stops'))
      client?.close()
    },
  }
}

function controllerOf({ controllers }: HostSettings, credentials: Credentials, dial: MoveHost['dial']) {
  if (controllers.length === 0) return undefined
  const { runLease, service, vms, close } = openController({ endpoints: controllers, credentials })
  const controller: MoveController = {
    ensureVm: (request) => service.ensureVm(request),
    ensureMigrationTarget: (request) => vms.ensureMigrationTarget(request),
    forecastTarget: (request) => service.forecastTarget(request),
    switchover: async (request) => void (await vms.migrationSwitchover(request)),
    getVm: (request) => service.getVm(request),
    listHosts: async () => (await service.listHosts({})).hosts,
  }
  const leases: LeaseController = {
    ensureVm: async (request, signal) => void (await service.ensureVm(request, { signal })),
    removeVm: async (us) => void (await service.removeVm({ us })),
    renewLease: (request, signal) => service.renewLease(request, { signal }),
    getVm: (request) => service.getVm(request),
    fenceVolume: async (host, request, signal) => {
      const { hosts } = await service.listHosts({}, { signal })
      const found = hosts.find(({ id }) => id === host)
      if (found === undefined)
        throw new AgentError('UNAVAILABLE', `host ${host}: not known to the controllers`)
      const connection = await dial(found.endpoint, host, signal)
      try {
        const { fenceVolume } = clientFor(HandoverDefinition, connection)
        return await fenceVolume(request, { signal, timeoutMs: FENCE_MS })
      } finally {
        connection.close()
      }
    },
    runLease,
  }
  return { controller, leases, service, close }
}

/** For the end of one server, and the start of another. */
const FENCE_MS = 60_000
const RELEASE_MS = 5000

const missing = async (): Promise<never> => {
  throw new AgentError('FAILED_PRECONDITION', 'host.controllers: none, want one in the configuration')
}

const NO_CONTROLLER: MoveController = {
  ...{ ensureVm: missing, ensureMigrationTarget: missing, switchover: missing },
  ...{ forecastTarget: missing, getVm: missing, listHosts: missing },
}

/** In the registry: the next daemon goes on draining. */
class Draining {
  readonly #registry: Registry
  #changed = Promise.withResolvers<void>()

  constructor(registry: Registry) {
    this.#registry = registry
  }

  async get(): Promise<boolean> {
    return (await this.#registry.load('settings')).has(DRAINING)
  }

  async set(isDraining: boolean): Promise<void> {
    const payload = isDraining ? Buffer.alloc(1) : undefined
    await this.#registry.commit([{ table: 'settings', key: DRAINING, payload }], { frees: true })
    this.#changed.resolve()
    this.#changed = Promise.withResolvers<void>()
  }

  /** Resolves at the next change. */
  changed(): Promise<void> {
    return this.#changed.promise
  }
}

const DRAINING = 'draining'

function nowNs(): bigint {
  return BigInt(Math.round((performance.timeOrigin + performance.now()) * 1000)) * 1000n
}
