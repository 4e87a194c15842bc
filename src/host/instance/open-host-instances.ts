import { constants, readFileSync, statSync } from 'node:fs'
import { mkdir, rm } from 'node:fs/promises'
import { join } from 'node:path'
import { AgentError, messageOf } from '../../base/errors.ts'
import type { Logger } from '../../base/log.ts'
import { buildAddon, buildHolder } from '../../build/native.ts'
import { LimitedCgroups } from '../../os/cgroup/limited-cgroups.ts'
import { linuxClock, sleep, startTimer } from '../../os/clock.ts'
import { findAgentFolder, loadNative } from '../../os/native.ts'
import type { Defaults } from '../machine/defaults.ts'
import { askedQemu } from '../qemu/capabilities.ts'
import { type Acceleration, chooseAcceleration, hasAccess, hostTscKhz } from '../qemu/host.ts'
import { findVsockDaemon } from '../qemu/vsock/choose-link.ts'
import type { Secrets } from '../secrets/secrets.ts'
import { hostMachines } from './documents/host-machines.ts'
import { nftFilters } from './filters/nft.ts'
import { LocalHolder } from './holder/local-holder.ts'
import { findHolder, killHolder, prepareHolder, type WaitingHolder } from './holder/start-holder.ts'
import type { Instances } from './instances.ts'
import { type HostLeases, type LeaseHost, openLeases } from './leases/host-leases.ts'
import { Volumes, type VolumesHost } from './leases/volumes.ts'
import { INSTANCE_LIMITS, type InstanceLimits } from './limits.ts'
import { cpuShares, hostNodes } from './machine/cpu-shares.ts'
import { hostLinks } from './machine/host-links.ts'
import { VARIABLES } from './machine/instance-files.ts'
import type { Plan } from './machine/plan.ts'
import { type PlanHost, planFor, type WallFacts } from './machine/plan.ts'
import type { Holders } from './machine/steps.ts'
import { checkUnused, UIDS, type UidRange, uidClaims } from './machine/uids.ts'
import type { Moves } from './moves.ts'
import { type InstancesParts, openInstances } from './open-instances.ts'
import type { Registry } from './registry/registry.ts'

export interface HostInstancesOptions {
  readonly stateFolder: string
  readonly registry: Registry
  readonly secrets?: Secrets | undefined
  readonly log: Logger
  /** INSTANCE_LIMITS by default. */
  readonly limits?: InstanceLimits | undefined
  /** MICROVM_ACCEL. */
  readonly acceleration: string | undefined
  /** Whether the machines end with this process, in place of going on without it. */
  readonly isLeashed?: boolean | undefined
  readonly quotas?: InstancesParts['quotas']
  /** Of the expansion of documents. */
  readonly defaults?: Defaults | undefined
  /** The path of the catalogue; that of this host by default. */
  readonly catalogue?: string | undefined
  /** Of the instances' processes, where the daemon is root. */
  readonly uids?: UidRange | undefined
  /** Undefined without controllers. */
  readonly leases?:
    | (Pick<LeaseHost, 'controller' | 'id' | 'only' | 'nextRunId'> & {
        readonly volumes: Pick<VolumesHost, 'address' | 'folders' | 'identity' | 'listen'>
      })
    | undefined
  /** Opens what saves machines. */
  readonly openMoves?: ((host: MovesHost) => Moves) | undefined
}

/** What machines as files depend on. */
export interface MovesHost {
  readonly stateFolder: string
  readonly acceleration: Acceleration
  readonly qemuVersion: () => Promise<string>
  /** That QEMU gives whole on this host. */
  readonly cpuModels: () => Promise<readonly string[]>
  readonly holders: Holders
  readonly log: Logger
}

/**
 * Opens the instances of a state folder with the programs of this host, and takes in again those that run. Throws
 * FAILED_PRECONDITION where no PID namespace can be made, without which processes would be left behind.
 */
export async function openHostInstances(options: HostInstancesOptions): Promise<Instances> {
  const [program] = await Promise.all([buildHolder(), buildAddon()])
  const holders = hostHolders(program, options)
  await tryHolder(holders, join(options.stateFolder, TRIAL)).catch((error) => {
    if (error instanceof AgentError && error.code === 'FAILED_PRECONDITION') throw error
    // Such as a full disk. Machines that run can be ended, which makes room.
    options.log.error('no holder can be started now', { error: messageOf(error) })
  })
  const cgroups = await LimitedCgroups.find(CGROUP)
  if (cgroups === undefined) options.log.warn('no limits of instances', { reason: 'no cgroup is writable' })
  const isRoot = process.getuid?.() === 0
  if (!isRoot)
    options.log.warn('no walls between instances', { reason: 'all processes are one user, want root' })
  const { uids = UIDS } = options
  // Each run of a hypervisor makes its instance anew.
  const variables = options.isLeashed ? join(options.stateFolder, VARIABLES) : undefined
  if (isRoot) await checkUnused(uids)
  const chosen = chosenAcceleration(options.acceleration)
  const nodes = hostNodes()
  const volumes = options.leases && volumesOf(options.leases, { ...options, holders })
  await volumes?.open()
  const qemu = askedQemu(PROGRAMS.qemu, chosen)
  return await openInstances({
    ...options,
    ...hostParts(),
    limits: options.limits ?? INSTANCE_LIMITS,
    uids: isRoot ? uidClaims({ range: uids, stateFolder: options.stateFolder, log: options.log }) : undefined,
    plan: hostPlan(
      {
        ...options,
        ...{ isKept: true, isLinked: options.isLeashed === true, variables },
        identity: options.leases?.volumes.identity,
      },
      { kvm: kvmUsers() },
      cgroups?.controllers,
    ),
    machines: hostMachines({
      facts: { acceleration: chosen, numaNodes: nodes.size === 0 ? undefined : [...nodes.values()] },
      qemu,
      catalogue: options.catalogue,
      defaults: options.defaults,
    }),
    cpus: cpuShares(options.catalogue),
    volumes,
    leases: options.leases && leasesOf({ ...options.leases, registry: options.registry }, options.log),
    isKept: true,
    isWalled: true,
    moves: options.openMoves?.({
      ...{ stateFolder: options.stateFolder, acceleration: chosen, holders, log: options.log },
      qemuVersion: async () => (await qemu.capabilities()).version,
      cpuModels: async () => (await qemu.capabilities()).wholeCpuModels,
    }),
    cgroups,
    holders,
  })
}

/** Of the built program. */
function hostHolders(program: string, { isLeashed }: Pick<HostInstancesOptions, 'isLeashed'>): Holders {
  const waiting = new Map<string, WaitingHolder>()
  return {
    begin: (folder) => {
      const holder = prepareHolder(folder, program)
      waiting.set(folder, holder)
      return {
        [Symbol.asyncDispose]: async () => {
          waiting.delete(folder)
          await holder[Symbol.asyncDispose]()
        },
      }
    },
    start: async (folder, cgroups) => {
      const prepared = waiting.get(folder) ?? prepareHolder(folder, program)
      waiting.delete(folder)
      return await prepared.hold(cgroups, isLeashed)
    },
    find: findHolder,
    kill: killHolder,
    close: () => {
      for (const holder of waiting.values()) void holder[Symbol.asyncDispose]()
    },
  }
}

/** The folder of a machine that ends with this process. Its name is short, for paths of sockets have little room. */
export function runFolderOf(stateFolder: string): string {
  return join(stateFolder, 'vm')
}

/** Opens the one instance of a process, whose machine ends with it, in an empty state folder. */
export async function openRunInstances(options: HostInstancesOptions): Promise<Instances> {
  const holders: Holders = {
    start: async (folder) => new LocalHolder(folder),
    find: async () => undefined,
    kill: async () => {},
  }
  const plan = hostPlan({ ...options, isKept: false })
  return await openInstances({
    ...options,
    ...hostParts(),
    plan,
    holders,
    onlyFolder: runFolderOf(options.stateFolder),
    uids: undefined,
    leases: undefined,
    isKept: false,
    isWalled: false,
  })
}

function leasesOf(host: Omit<LeaseHost, 'clock' | 'filters' | 'log'>, log: Logger): HostLeases {
  const clock = linuxClock(loadNative(findAgentFolder(import.meta.filename)))
  return openLeases({ ...host, clock, filters: nftFilters(), log })
}

function volumesOf(
  { controller, id, volumes }: NonNullable<HostInstancesOptions['leases']>,
  host: Pick<VolumesHost, 'holders' | 'log' | 'registry' | 'stateFolder'>,
): Volumes {
  const { stateFolder, holders, log, registry } = host
  return new Volumes({
    ...{ ...volumes, id, getVm: (request) => controller.getVm(request), program: PROGRAMS['storage-daemon'] },
    ...{ stateFolder, holders, log, registry },
    ...{ clock: hostParts().clock, limits: INSTANCE_LIMITS },
  })
}

function hostParts() {
  return {
    links: hostLinks(),
    filters: nftFilters(),
    clock: {
      ...{ sleep, startTimer },
      // Since the boot of this host: the next daemon goes on with the times in the records.
      monotonicMs: () => Number(process.hrtime.bigint() / 1_000_000n),
    },
    limits: INSTANCE_LIMITS,
  }
}

/** Above the cgroups of instances. */
const CGROUP = 'microvm'

/** Beside the instances' folders. */
const TRIAL = 'trial-holder'

async function tryHolder(holders: Holders, folder: string): Promise<void> {
  await mkdir(folder, { mode: 0o700, recursive: true })
  try {
    // An earlier daemon may have died in its trial.
    const holder = (await holders.find(folder)) ?? (await holders.start(folder, []))
    await holder.end()
    await holder.ended
  } finally {
    await rm(folder, { recursive: true, force: true })
  }
}

/** What a start makes with the programs of this host. */
export function hostPlan(
  {
    log,
    acceleration,
    isKept,
    isLinked,
    variables,
    secrets,
    identity,
  }: Pick<HostInstancesOptions, 'log' | 'acceleration' | 'secrets'> &
    Pick<InstancesParts, 'isKept'> &
    Pick<PlanHost, 'identity' | 'isLinked' | 'variables'>,
  walls?: WallFacts,
  cgroups?: PlanHost['cgroups'],
): Plan {
  const chosen = chosenAcceleration(acceleration)
  if (chosen === 'kvm' && walls?.kvm === 'root')
    log.warn('QEMU is root', { reason: '/dev/kvm is for root only, want it for a group' })
  return planFor({
    acceleration: chosen,
    tscKhz: hostTscKhz(),
    walls,
    isKept,
    isLinked,
    cgroups,
    variables,
    nodes: hostNodes(),
    secrets,
    identity,
    program: async (name) =>
      name === 'vsock-daemon' ? await findVsockDaemon((line) => log.info(line)) : PROGRAMS[name],
  })
}

function chosenAcceleration(override: string | undefined): Acceleration {
  return chooseAcceleration({
    cpuinfo: readFileSync('/proc/cpuinfo', 'utf8'),
    kvmUsable: hasAccess('/dev/kvm', constants.R_OK | constants.W_OK),
    override,
  })
}

function kvmUsers(): WallFacts['kvm'] {
  const status = statSync('/dev/kvm', { throwIfNoEntry: false })
  if (status === undefined || (status.mode & 0o006) === 0o006) return 'all'
  return (status.mode & 0o060) === 0o060 && status.gid !== 0 ? status.gid : 'root'
}

/** Where Debian has them; those without a folder are found on PATH. */
const PROGRAMS = {
  qemu: 'qemu-system-x86_64',
  virtiofsd: '/usr/lib/qemu/virtiofsd',
  passt: 'passt',
  'storage-daemon': 'qemu-storage-daemon',
} as const
