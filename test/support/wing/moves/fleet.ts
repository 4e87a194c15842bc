import { type ChildProcess, execFileSync } from 'node:child_process'
import { createWriteStream, existsSync, readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import { projectRoot } from '../../../../src/build/project.ts'
import {
  ChangeStateRequest_Change as Change,
  ChangeStateRequest,
  EnsureInstanceRequest,
  InstanceServiceDefinition,
  MigrateInstanceRequest,
  MigrateInstanceResponse,
  type State,
} from '../../../../src/gen/microvm/instance/v1/instance.ts'
import { LeaseMode } from '../../../../src/gen/vm.ts'
import { readRing } from '../../../../src/host/instance/holder/holder-files.ts'
import { killHolder } from '../../../../src/host/instance/holder/start-holder.ts'
import { endpointText } from '../../../../src/host/tls/endpoint.ts'
import { daemonClient } from '../../host-wing/running-daemon.ts'
import { endChild, signalThose } from '../../processes.ts'
import { temporaryFolder } from '../../temporary-folder.ts'
import { startControllerProcess } from '../controller/controller-process.ts'
import { type Etcd, startEtcd } from '../controller/etcd.ts'
import { CountingMachines } from '../counting-machine.ts'
import { startDaemonProcess } from '../daemon-process.ts'
import { leftovers } from '../leftovers.ts'
import { image } from '../real-wing.ts'
import { file } from '../requests.ts'
import { StepGate } from './faults/step-gate.ts'
import { hostAuthority } from './host-certificates.ts'
import { JOURNAL_MIB, journalGuest } from './journal.ts'
import { JournalPod } from './journal-pod.ts'
import type { Authority } from './sign-certificates.ts'
import { addressOf, TestNetwork } from './test-network.ts'

export const HOSTS = ['a', 'b'] as const
export type HostId = (typeof HOSTS)[number]

const KEY = 'web'
const HOST_PORT = 7443
const CONTROLLER_PORTS = [7440, 7441] as const
const MEMBERS = 3
/** How long a daemon may take for one answer. */
const ANSWER_MS = 5000
/** For a machine that is removed, and then for the servers of its disks; between two looks. */
const [FORGET_MS, LOOK_MS] = [60_000, 50]

/** Who has run the machine, as etcd has kept it: one line of read-chain.ts. */
export interface Link {
  readonly generation: number
  readonly pod: string
  readonly run: string
}

export interface FleetOptions {
  /** Its machine runs only while it has a lease, and the host on which it is made serves its disk. */
  readonly leaseTtlMs?: number
  /** Its machine is a guest with an agent. */
  readonly isPod?: boolean
}

/**
 * Two hosts that reach the same disks, two controllers and three members of etcd, all of them processes, in network namespaces. One
 * machine keeps a journal on a disk.
 */
export class Fleet {
  readonly network: TestNetwork
  readonly etcd: Etcd
  readonly gates: Readonly<Record<HostId, StepGate>>
  readonly disks = temporaryFolder()
  readonly journal: string
  readonly #authority: Authority
  readonly #logs = temporaryFolder()
  readonly #machines: Readonly<Record<HostId, CountingMachines>>
  readonly #daemons = new Map<HostId, ChildProcess>()
  readonly #controllers = new Map<number, ChildProcess>()
  #metricsPort = 9000

  readonly #leaseTtlMs: number
  readonly #pod: JournalPod | undefined

  private constructor(
    network: TestNetwork,
    etcd: Etcd,
    { gates, isPod, leaseTtlMs }: Required<FleetOptions> & { readonly gates: Fleet['gates'] },
  ) {
    this.network = network
    this.etcd = etcd
    this.gates = gates
    this.#leaseTtlMs = leaseTtlMs
    this.#authority = hostAuthority('hosts', ['controller', ...HOSTS])
    const machines = () => new CountingMachines(temporaryFolder(), this.disks)
    this.#machines = { a: machines(), b: machines() }
    this.journal = image(this.disks, 'journal', JOURNAL_MIB)
    this.#pod = isPod ? new JournalPod(this.disks, this.journal) : undefined
  }

  static async start({ isPod = false, leaseTtlMs = 0 }: FleetOptions = {}): Promise<Fleet> {
    const network = await TestNetwork.make()
    const etcd = await startEtcd(temporaryFolder(), { count: MEMBERS, enter: network.enter('c') })
    const [a, b] = await Promise.all([StepGate.listen(), StepGate.listen()])
    const fleet = new Fleet(network, etcd, { isPod, leaseTtlMs, gates: { a, b } })
    await Promise.all(CONTROLLER_PORTS.map((_, index) => fleet.startController(index)))
    await Promise.all(HOSTS.map((host) => fleet.startDaemon(host)))
    return fleet
  }

  get controllers(): readonly number[] {
    return CONTROLLER_PORTS.map((_, index) => index)
  }

  async startController(index: number): Promise<void> {
    const at = (port: number) => ({ host: addressOf('c'), port })
    const started = await startControllerProcess({
      ...{ authority: this.#authority, etcd: this.etcd.endpoints, enter: this.network.enter('c') },
      ...{ listen: at(CONTROLLER_PORTS[index] ?? 0), metrics: at(this.#metricsPort++) },
    })
    this.#keepLog(`controller-${index}`, started)
    this.#controllers.set(index, started)
  }

  async startDaemon(host: HostId): Promise<void> {
    const config = join(this.#logs, `${host}.toml`)
    writeFileSync(config, this.#configuration(host))
    const started = await startDaemonProcess(this.#machines[host].folder, {
      enter: [...this.network.enter(host), 'setpriv', '--pdeathsig', 'KILL'],
      words: ['--config', config, '--gate', this.gates[host].path],
      main: 'test/support/wing/moves/faults/stepping-daemon.ts',
    })
    this.#keepLog(host, started)
    this.#daemons.set(host, started)
  }

  /** Of the daemons of a host. */
  moveClock(host: HostId, byMs: number): void {
    this.gates[host].moveClock(byMs)
  }

  daemon(host: HostId): ChildProcess {
    const daemon = this.#daemons.get(host)
    if (daemon === undefined) throw new Error(`no daemon of host ${host}`)
    return daemon
  }

  controller(index: number): ChildProcess {
    const controller = this.#controllers.get(index)
    if (controller === undefined) throw new Error(`no controller ${index}`)
    return controller
  }

  pidsOf(what: 'qemu' | 'holder', host: HostId): readonly number[] {
    return this.#machines[host].pidsOf(what, KEY)
  }

  /** Of the instance on a host. */
  folderOf(host: HostId): string {
    return this.#machines[host].folderOf(KEY)
  }

  /** Makes the machine on a host, and lets it run. */
  async make(host: HostId): Promise<void> {
    const specification = await this.#pod?.specification()
    const request = specification
      ? EnsureInstanceRequest.fromPartial({ properties: { key: KEY }, specification })
      : this.#machines[host].request(KEY, {
          board: { kernel: journalGuest(this.disks) },
          backends: { 'root-file': file(this.journal) },
        })
    const lease = { mode: LeaseMode.LM_FULL_LEASES, ttlMs: this.#leaseTtlMs }
    if (request.properties && this.#leaseTtlMs > 0) request.properties.lease = lease
    await this.#with(host, ({ instances }) => instances.ensureInstance(request, { timeoutMs: 30_000 }))
    await this.run(host)
    await this.begin(host)
  }

  async run(host: HostId): Promise<void> {
    const request = ChangeStateRequest.fromPartial({ key: KEY, change: Change.RUN })
    await this.#with(host, ({ instances }) => instances.changeState(request, { timeoutMs: 30_000 }))
  }

  /** Lets a machine that was started keep the journal. */
  async begin(host: HostId): Promise<void> {
    await this.#pod?.begin(KEY, this.#socketOf(host))
  }

  /** All that the machine has printed, by its console or an output, as a host knows it, and the number of its first byte. */
  async printed(host: HostId): Promise<Pick<Awaited<ReturnType<typeof readRing>>, 'bytes' | 'first'>> {
    const folder = this.folderOf(host)
    return await (this.#pod?.printed(folder) ?? readRing(folder, 0))
  }

  /** The state of the instance on a host; undefined for none. Rejects when its daemon does not answer. */
  async stateOn(host: HostId): Promise<State | undefined> {
    const answer = await this.#with(host, ({ instances }) =>
      instances.listInstances({}, { timeoutMs: ANSWER_MS }),
    )
    const found = answer.instances.find(({ properties }) => properties?.key === KEY)
    return found?.state
  }

  /** Those that the controllers know of, as the daemon of one says. */
  async hostsKnownTo(host: HostId): Promise<readonly string[]> {
    const { hosts } = await this.#with(host, ({ instances }) =>
      instances.listHosts({}, { timeoutMs: ANSWER_MS }),
    )
    return hosts.map(({ id }) => id)
  }

  /** Moves the machine. Resolves with what the source's daemon says of a move that has failed; undefined once it has moved. */
  async move(from: HostId, to: HostId, onStep: (step: string) => void): Promise<string | undefined> {
    return await this.#with(from, async ({ open }) => {
      const { migrateInstance } = InstanceServiceDefinition.methods
      const { call, ended } = open(`${InstanceServiceDefinition.fullName}/${migrateInstance.name}`)
      call.on('data', (bytes: Buffer) => onStep(MigrateInstanceResponse.decode(bytes).step))
      const how = this.#pod === undefined ? { withoutAgent: true } : { quiesce: true }
      const request = MigrateInstanceRequest.fromPartial({ key: KEY, toHost: to, ...how })
      call.end(MigrateInstanceRequest.encode(request).finish())
      return await ended.then(
        () => undefined,
        (error) => String(error.message),
      )
    })
  }

  /** All that etcd has kept of who runs the machine, the first first; nothing once it has been removed. */
  chain(): readonly Link[] {
    const program = join(projectRoot, 'test/support/wing/moves/read-chain.ts')
    const endpoints = this.etcd.endpoints.map(endpointText)
    const [command = '', ...words] = [
      ...this.network.enter('c'),
      process.execPath,
      program,
      KEY,
      ...endpoints,
    ]
    return JSON.parse(execFileSync(command, words, { encoding: 'utf8' }))
  }

  /** The last lines of all logs. */
  logs(): string {
    const names = [...HOSTS, ...this.controllers.map((index) => `controller-${index}`)]
    return names
      .map((name) => `-- ${name}\n${readFileSync(this.#logOf(name), 'utf8').slice(-6000)}`)
      .join('\n')
  }

  /** Removes the machine, and ends all. Returns what is left of it on the hosts. */
  async end(): Promise<readonly string[]> {
    for (const host of HOSTS)
      await this.#with(host, ({ instances }) => instances.remove({ key: KEY }, { timeoutMs: 30_000 })).catch(
        () => {},
      )
    await this.#forgetVolumes()
    await Promise.all([...this.#daemons.values()].map((daemon) => endChild(daemon)))
    const left = HOSTS.flatMap((host) => leftovers(this.#machines[host].folder))
    await this.kill()
    return left
  }

  /** The host of a disk goes on serving it to the machine of another one until the controllers do not know that any more. */
  async #forgetVolumes(): Promise<void> {
    for (const host of HOSTS) {
      if (this.#volumesOf(host).length === 0) continue
      await until(() => this.chain().length === 0)
      // The next daemon asks them at once, and then not for minutes.
      await endChild(this.daemon(host))
      await this.startDaemon(host)
      await until(() => this.#volumesOf(host).length === 0)
    }
  }

  /** Folders of those that a host serves. */
  #volumesOf(host: HostId): readonly string[] {
    const folder = join(this.#machines[host].folder, 'volumes')
    return existsSync(folder) ? readdirSync(folder).map((name) => join(folder, name)) : []
  }

  /** Kills whatever runs of the fleet. */
  async kill(): Promise<void> {
    const children = [...this.#daemons.values(), ...this.#controllers.values()]
    await Promise.all(children.map((child) => endChild(child, 'SIGKILL')))
    for (const host of HOSTS) {
      signalThose(this.pidsOf('holder', host), 'SIGKILL')
      for (const volume of this.#volumesOf(host)) await killHolder(volume)
    }
    await this.etcd.end()
    for (const host of HOSTS) this.gates[host].close()
    this.network.end()
  }

  async #with<Answer>(
    host: HostId,
    work: (client: ReturnType<typeof daemonClient>) => Promise<Answer>,
  ): Promise<Answer> {
    const client = daemonClient(this.#socketOf(host))
    try {
      return await work(client)
    } finally {
      client.close()
    }
  }

  #socketOf(host: HostId): string {
    return join(this.#machines[host].folder, 'admin.sock')
  }

  #configuration(host: HostId): string {
    const { ca, folder } = this.#authority
    const address = addressOf(host)
    const controllers = CONTROLLER_PORTS.map((port) => `"${addressOf('c')}:${port}"`)
    return [
      ...['[host]', `id = "${host}"`, `listen = "${address}:${HOST_PORT}"`, `controllers = [${controllers}]`],
      ...[
        `ca = "${ca}"`,
        `cert = "${join(folder, `${host}.pem`)}"`,
        `key = "${join(folder, `${host}.key`)}"`,
        `volumes = { "${this.disks}" = ["${host === 'a' ? 'b' : 'a'}"] }`,
      ],
      '',
    ].join('\n')
  }

  #keepLog(name: string, { stderr }: ChildProcess): void {
    stderr?.pipe(createWriteStream(this.#logOf(name), { flags: 'a' }))
  }

  #logOf(name: string): string {
    return join(this.#logs, `${name}.log`)
  }
}

async function until(isSo: () => boolean): Promise<void> {
  for (const late = AbortSignal.timeout(FORGET_MS); !isSo(); await delay(LOOK_MS)) late.throwIfAborted()
}
