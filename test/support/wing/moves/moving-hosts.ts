import { mkdirSync } from 'node:fs'
import { join } from 'node:path'
import { AgentError } from '../../../../src/base/errors.ts'
import { type Logger, silentLogger } from '../../../../src/base/log.ts'
import {
  type Backend,
  ChangeStateRequest_Change as Change,
  ChangeStateRequest,
  type DeepPartial,
  EnsureInstanceRequest,
  type Instance,
  MigrateInstanceRequest,
  type MigrateInstanceResponse,
  type Specification,
} from '../../../../src/gen/microvm/instance/v1/instance.ts'
import type { Caller } from '../../../../src/host/instance/instances.ts'
import type { AtStep } from '../../../../src/host/migration/faults.ts'
import { type Daemon, startDaemon } from '../../../../src/host/service/daemon.ts'
import { endpointText } from '../../../../src/host/tls/endpoint.ts'
import { temporaryFolder } from '../../temporary-folder.ts'
import { CountingMachines } from '../counting-machine.ts'
import { ADMIN } from '../requests.ts'
import { hostAuthority, hostOf } from './host-certificates.ts'
import type { Authority } from './sign-certificates.ts'
import { StandInController } from './stand-in-controller.ts'

/** A host with a daemon of its own. */
export interface MovingHost {
  readonly id: string
  readonly settings: ReturnType<typeof hostOf>
  /** Reads what its machines tell. */
  readonly machines: CountingMachines
  daemon: Daemon | undefined
  /** Called before each step of a move. */
  atStep: AtStep
}

/** Hosts of one authority and one controller, which reach the same disks. */
export class MovingHosts {
  readonly controller = new StandInController()
  readonly disks = temporaryFolder()
  readonly authority: Authority
  readonly log: Logger
  /** Backends that are different at a target. */
  replaced: Readonly<Record<string, Backend>> = {}
  /** Of a collector that gets the spans of those that are opened later. */
  otlpEndpoint: string | undefined
  /** Of the names in documents. */
  catalogue: string | undefined
  /** How long the end of a daemon waits for its moves: by default it is a death. */
  settleMs = 0
  readonly #hosts = new Map<string, MovingHost>()
  readonly #opening = new Map<string, Promise<Daemon>>()

  constructor(ids: readonly string[], log = silentLogger()) {
    this.log = log
    this.authority = hostAuthority('hosts', ids)
    mkdirSync(join(this.disks, 'images'), { recursive: true })
    for (const id of ids) {
      const settings = hostOf(this.authority, id)
      const machines = new CountingMachines(temporaryFolder(), join(this.disks, 'images'))
      const host: MovingHost = { id, settings, machines, daemon: undefined, atStep: async () => {} }
      this.#hosts.set(id, host)
      this.controller.hosts.set(id, {
        endpoint: endpointText(settings.listen),
        ensureTarget: async ({ vmName: key }, source) => {
          const { instances } = await this.open(id)
          const target = {
            properties: { key },
            migrationTarget: { source, replaceComponents: this.replaced },
          }
          await instances.ensure(EnsureInstanceRequest.fromPartial(target), ADMIN)
        },
      })
    }
  }

  host(id: string): MovingHost {
    const host = this.#hosts.get(id)
    if (host === undefined) throw new Error(`no host ${id}`)
    return host
  }

  /** Starts the daemon of a host that has none, once for all who ask meanwhile. */
  async open(id: string): Promise<Daemon> {
    const { daemon } = this.host(id)
    if (daemon !== undefined) return daemon
    const opening = this.#opening.get(id) ?? this.#start(id).finally(() => this.#opening.delete(id))
    this.#opening.set(id, opening)
    return await opening
  }

  async #start(id: string): Promise<Daemon> {
    const host = this.host(id)
    host.daemon = await startDaemon({
      ...{ stateFolder: host.machines.folder, mock: false, acceleration: 'tcg', log: this.log },
      configuration: {
        ...{ tenants: [], host: host.settings, otlpEndpoint: this.otlpEndpoint, catalogue: this.catalogue },
      },
      ...{ controller: this.controller, settleMs: this.settleMs },
      atStep: (operation, step) => host.atStep(operation, step),
    })
    return host.daemon
  }

  /** A machine that runs on a host and has told some numbers. */
  async make(id: string, key = 'web', change: DeepPartial<Specification> = {}): Promise<Instance> {
    const { instances } = await this.open(id)
    const { machines } = this.host(id)
    await instances.ensure(machines.request(key, change), ADMIN)
    const run = ChangeStateRequest.fromPartial({ key, change: Change.RUN })
    const running = await instances.changeState(run, ADMIN)
    await machines.counted(key, 1)
    return running
  }

  /** All answers of a move from one host to another. */
  async move(
    from: string,
    to: string,
    change: DeepPartial<MigrateInstanceRequest> = {},
    caller: Caller = ADMIN,
  ): Promise<readonly MigrateInstanceResponse[]> {
    const { instances } = await this.open(from)
    const request = MigrateInstanceRequest.fromPartial({ key: 'web', toHost: to, ...change })
    const answers: MigrateInstanceResponse[] = []
    for await (const answer of instances.move.migrate(request, caller)) answers.push(answer)
    return answers
  }

  /** Removes all instances, and ends the daemons. */
  async end(): Promise<void> {
    for (const id of this.#hosts.keys()) {
      const { instances } = await this.open(id)
      for (const { properties } of instances.list(ADMIN))
        await instances.remove(properties?.key ?? '', ADMIN).catch(onlyNotFound)
      await this.leave(id)
    }
  }

  /** Ends a daemon, whose instances go on. */
  async leave(id: string): Promise<void> {
    const host = this.host(id)
    await host.daemon?.close()
    host.daemon = undefined
  }
}

/** A target whose move has failed goes by itself. */
function onlyNotFound(error: unknown): void {
  if (!(error instanceof AgentError) || error.code !== 'NOT_FOUND') throw error
}
