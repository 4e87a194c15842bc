import { chown, rm } from 'node:fs/promises'
import { basename, dirname, join } from 'node:path'
import { setImmediate } from 'node:timers/promises'
import { AgentError, messageOf } from '../../../base/errors.ts'
import type { Logger } from '../../../base/log.ts'
import type { InstanceRecord, StepRecord } from '../../../gen/microvm/instance/v1/records.ts'
import type { CgroupLimits, LimitedCgroups } from '../../../os/cgroup/limited-cgroups.ts'
import type { Clock } from '../../../os/clock.ts'
import type { Machine as MachineOfDocument } from '../../machine/machine.ts'
import type { QmpEvent } from '../../qemu/qmp/message.ts'
import { makeOwnFiles } from '../documents/own-files.ts'
import { filtered, type PacketFilters } from '../filters/nft.ts'
import { type Ruleset, tableOf, withoutTable } from '../filters/tap-rules.ts'
import { answer, endChild, endRunning } from '../holder/ask-holder.ts'
import type { ChildPlan, HeldChild, Holder } from '../holder/holder.ts'
import { FENCE_STEP, LEASE_STEP, volumeStep } from '../leases/lease-steps.ts'
import type { MachineLease } from '../leases/machine-lease.ts'
import type { Server, Volumes } from '../leases/volumes.ts'
import type { InstanceLimits } from '../limits.ts'
import { writeRecordFile } from '../record/instance-record.ts'
import { claimSaved, releaseSaved } from '../record/saved-claim.ts'
import { removeFiles as removeLayerFiles } from '../snapshots/overlay-file.ts'
import { awaitSocket, explainDaemon } from './await-socket.ts'
import { type CpuShares, pinCpus } from './cpu-shares.ts'
import type { HostLinks } from './host-links.ts'
import { makeFolders, makeLinks, makeVariables, removeFiles } from './instance-files.ts'
import { cgroupName } from './limits-of.ts'
import { Machine, QEMU } from './machine.ts'
import { inflateBalloon, setPassword, throttleDisk } from './qemu-settings.ts'
import { linksOfWords } from './tap-links.ts'
import { explainStart, withPaths } from './walls.ts'

/** How holders are started and found again. */
export interface Holders {
  /** Begins what the next `start` for this folder waits for. Nothing is made, and what has begun ends with its disposal. */
  begin?(folder: string): AsyncDisposable
  /** Ends all that has begun. What was started goes on. */
  close?(): void
  /** The holder and all that it starts are in the cgroups with these folders. */
  start(folder: string, cgroups: readonly string[]): Promise<Holder>
  /** Undefined when none runs for this folder. */
  find(folder: string): Promise<Holder | undefined>
  /** Kills one that does not answer to `find`. */
  kill(folder: string): Promise<void>
}

/** The cgroups of instances. */
export type Cgroups = Pick<LimitedCgroups, 'controllers' | 'make' | 'foldersOf' | 'remove'>

/** What the steps of one instance work on. */
export interface StepContext {
  readonly folder: string
  readonly holders: Holders
  /** Whether QEMU can open nothing of the host itself. */
  readonly isWalled: boolean
  /** Undefined where none can be made. */
  readonly cgroups?: Cgroups | undefined
  /** Set by the step `holder`, or when the instance is taken in again. */
  holder: Holder | undefined
  /** Set by the step `qemu`, or when the instance is taken in again. */
  machine: Machine | undefined
  /** While the machine has one. */
  lease?: MachineLease | undefined
  /** Undefined without controllers. */
  readonly volumes?: Volumes | undefined
  readonly onEvent: (event: QmpEvent) => void
  /** Ends waits for QEMU when the instance is to end at once. */
  readonly ending: () => AbortSignal
  readonly links: HostLinks
  readonly filters: PacketFilters
  /** Undefined where no machine has CPUs for itself. */
  readonly cpus?: CpuShares | undefined
  readonly limits: InstanceLimits
  readonly clock: Pick<Clock, 'sleep' | 'startTimer' | 'monotonicMs'>
  readonly log: Logger
}

/** A step of a start: `words` are what its undo needs. */
export interface PlannedStep {
  readonly step: StepName
  readonly words: readonly string[]
  readonly argv?: readonly [string, ...string[]]
  /** Of the process; see {@link ChildPlan}. */
  readonly walls?: readonly string[]
  /** Of QEMU: the files of the secrets that open its disks, by their UUIDs; '' for one that was forgotten while it runs. */
  readonly secrets?: ReadonlyMap<string, string>
  /** Of the cgroup. */
  readonly limits?: CgroupLimits
  /** Of the filter: its field in the specification, and what is to be so. */
  readonly filter?: { readonly path: string; readonly ruleset: Ruleset }
  /** Of the process: a folder of links, by their names, which are made before it. */
  readonly links?: { readonly folder: string; readonly targets: Readonly<Record<string, string>> }
  /** Whose files are to be in the folder. */
  readonly machine?: MachineOfDocument
  /** Of the volume. */
  readonly server?: Server<Pick<PlannedStep, 'argv' | 'walls' | 'links'>>
  /** Of what a machine has by its lease, which comes here without one: it is not to run before the step is made again. */
  readonly awaitsLease?: true
  /** Of the tap: the hardware address of its guest's card. */
  readonly mac?: string
  /** Brings files of a saved machine. */
  readonly bring?: () => Promise<void>
}

interface Step {
  /** It is undone when the instance is removed, not already when it stops. */
  readonly isKept?: true
  readonly make: (context: StepContext, planned: PlannedStep, record: InstanceRecord) => Promise<void>
  /** Also for a step that was written down and then not done, and a second time. */
  readonly undo: (context: StepContext, words: readonly string[]) => Promise<void>
}

export type StepName =
  | 'folder'
  | 'resume'
  | 'clone'
  | 'revert'
  | 'variables'
  | 'cgroup'
  | 'fence'
  | 'filter'
  | 'holder'
  | 'lease'
  | 'volume'
  | 'daemon'
  | 'qemu'
  | 'cpus'
  | 'throttle'
  | 'balloon'
  | 'password'
  | 'tap'
  | 'stream'
  | 'plug'
  | 'reset'
  | 'replace'
  | 'snapshot'
  | 'merge'
  | 'layer'
  | 'suspend'
  | 'move'
  | 'incoming'
  | 'memory'
  | 'replug'
  | 'repair'

/** A saved machine that has run is resumed no more: its disks may have what its memory does not know. */
export const RUNS = 'runs'

/** What is made for an instance, in this order. It is undone in the reverse order. */
export const STEPS: Readonly<Record<StepName, Step>> = {
  folder: {
    isKept: true,
    make: async ({ folder }, { machine }, record) => {
      makeFolders(folder, record.uid)
      if (machine !== undefined) await makeOwnFiles(machine, folder)
    },
    undo: ({ folder }) => rm(folder, { recursive: true, force: true }),
  },
  /**
   * Words are an empty one, the folder of the saved machine, its id, the instance's key, and RUNS once its guest may have run. It is
   * no other's from then on.
   */
  resume: {
    isKept: true,
    make: async (context, { words: [, saved = '', id = '', key = ''], bring }) => {
      await claimSaved(saved, { id, folder: context.folder, key })
      await bring?.()
    },
    undo: async ({ folder }, [, saved = '', id = '', , runs]) => {
      if (runs !== RUNS) await releaseSaved(saved, { id, folder })
    },
  },
  /** Words are an empty one, the folder of the saved machine, which stays, and its id. */
  clone: { isKept: true, make: async (_, { bring }) => await bring?.(), undo: async () => {} },
  /** Words are as src/host/instance/snapshots/revert.ts has them. */
  revert: { isKept: true, make: async (_, { bring }) => await bring?.(), undo: async () => {} },
  /** What UEFI remembers: words are an empty one and the path. A file in another folder outlives the instance. */
  variables: {
    isKept: true,
    make: (_, { words: [, path = '', from] }) => makeVariables(path, from),
    undo: async (context, [, path = '']) => {
      if (basename(dirname(path)) === basename(context.folder)) await removeFiles(context.folder, [path])
    },
  },
  /** Words are an empty one and the name. */
  cgroup: {
    make: async ({ cgroups }, { words: [, name = ''], limits = {} }) => await cgroups?.make(name, limits),
    // A copied state folder has the cgroup of the original.
    undo: async ({ cgroups, folder }, [, name = '']) =>
      name === cgroupName(folder) ? await cgroups?.remove(name) : undefined,
  },
  fence: FENCE_STEP,
  /**
   * The rules of a tap: words are its backend's key and their table. They are made once QEMU has made its tap, before that is
   * set up, and are undone after all processes have ended.
   */
  filter: {
    make: async ({ filters }, { filter }) => {
      const { path, ruleset } = present(filter)
      await filtered(path, filters.apply(ruleset))
    },
    // A copied state folder has the table of the original.
    undo: async ({ filters, folder }, [key = '', table = '']) =>
      table === tableOf(folder, key) ? await filters.apply(withoutTable(table)) : undefined,
  },
  /**
   * Words are an empty one, the folder, and the cgroup; all processes that the holder starts are in that too. The record is in its file
   * before the first of them.
   */
  holder: {
    make: async (context, { words: [, , cgroup] }, record) => {
      const { folder, holders, cgroups, cpus } = context
      const folders = cgroup === undefined ? [] : await cgroups?.foldersOf(cgroup)
      const starting = answer(context, holders.start(folder, folders ?? []))
      // The holder begins meanwhile.
      const writing = setImmediate().then(() => writeRecordFile(folder, record))
      const [started, written, common] = await Promise.allSettled([starting, writing, cpus?.common()])
      if (started.status === 'rejected') {
        // One that comes late may not be found yet, and would be in the cgroup.
        await answer(context, holders.kill(folder))
        throw started.reason
      }
      context.holder = started.value
      if (written.status === 'rejected') throw written.reason
      if (common.status === 'rejected') throw common.reason
      const { pid } = started.value
      if (pid !== undefined && common.value !== undefined) await cpus?.keepOn(pid, common.value)
    },
    undo: endHolder,
  },
  lease: LEASE_STEP,
  /** A disk that only this machine writes to, while its lease lasts. Words are those of a daemon. */
  volume: volumeStep<StepContext, PlannedStep, InstanceRecord>(() => STEPS.daemon),
  /** The daemon of a device: words are its backend's key, its name, its socket, and other files that it leaves. */
  daemon: {
    make: async (context, { words: [key = '', name = '', socket = ''], argv, links, walls }, { uid }) => {
      if (links !== undefined) await makeLinks(links.folder, links.targets)
      const holder = holderOf(context)
      const plan = { name, argv: present(argv), walls, output: 'log' } as const
      const log = join(context.folder, `${name}.log`)
      const process = { holder, name, log, ms: context.limits.daemonMs }
      // The holder may have carried out a start whose answer was not awaited any more.
      await endChild(context, name)
      await awaitSocket(socket, process, () => startChild(context, plan)).catch((error) => {
        throw explainDaemon(error, { key, name, isRoutable: context.links.isRoutable() })
      })
      // The daemon is another user than QEMU.
      if (dirname(socket) === context.folder && uid !== 0) await chown(socket, uid, uid)
    },
    undo: async (context, [, name = '', ...paths]) => {
      await endChild(context, name)
      await removeFiles(context.folder, paths)
    },
  },
  qemu: {
    make: async (context, { argv, walls }) => {
      await startChild(context, { name: QEMU.child, argv: present(argv), walls, output: 'console' })
      context.machine = await connectMachine(context, holderOf(context)).catch((error) => {
        throw error instanceof AgentError
          ? new AgentError(error.code, withPaths(error.message, walls ?? []))
          : error
      })
    },
    undo: async (context, [, socket = '']) => {
      context.machine?.close()
      context.machine = undefined
      await endChild(context, QEMU.child)
      await removeFiles(context.folder, [socket])
    },
  },
  /** Words are an empty one, and the exclusive CPUs of this host for QEMU's, in their order. */
  cpus: {
    make: async (context, { words: [, list = ''] }) => {
      const children = await answer(context, holderOf(context).children())
      await pinCpus(context, children, list.split(',').map(Number))
    },
    undo: async () => {},
  },
  /** Words are a disk's backend's key, its device in QEMU, and what it may do in a second: times and bytes; 0 is no limit. */
  throttle: { make: (context, { words }) => throttleDisk(context, words), undo: async () => {} },
  /** Words are an empty one, and the bytes of memory that the guest begins with. */
  balloon: { make: (context, { words }) => inflateBalloon(context, words), undo: async () => {} },
  /** Words are a screen's backend's key, its protocol, the end of the password for QEMU, and the file that has it. */
  password: { make: (context, { words }) => setPassword(context, words), undo: async () => {} },
  /** A tap that QEMU has made, and that goes with QEMU: words are its backend's key, its name, its bridge and its links. */
  tap: {
    make: ({ links }, { mac = '', words: [, name = '', bridge = '', ...ends] }) =>
      links.connect(name, { bridge, links: linksOfWords(ends), mac }),
    undo: async () => {},
  },
  /** The socket and the ring of one stream: words are the port and two paths. */
  stream: {
    make: async () => {},
    undo: (context, [, ...paths]) => removeFiles(context.folder, paths),
  },
  /** A change of a machine that runs. What was made for it in QEMU ends with QEMU. */
  plug: { make: async () => {}, undo: async () => {} },
  /** Words are the boot id before it, and the state that the machine has afterwards. */
  reset: { make: async () => {}, undo: async () => {} },
  replace: { make: async () => {}, undo: async () => {} },
  /**
   * Changes of layers, which are finished before anything else is done with them (src/host/instance/snapshots/settle.ts): what
   * a snapshot makes may have what the guest has written since.
   */
  snapshot: { isKept: true, make: async () => {}, undo: async () => {} },
  merge: { isKept: true, make: async () => {}, undo: async () => {} },
  /** The files of a layer that the record does not have yet, or no longer: words are its id. */
  layer: {
    isKept: true,
    make: async () => {},
    undo: ({ folder }, [id]) => removeLayerFiles(folder, [{ id: Number(id) }]),
  },
  /**
   * Words are an empty one, the folder of the saved machine, its id, the state that the machine had, `agent` if that was asked, and
   * the ports whose streams had ended.
   */
  suspend: { isKept: true, make: async () => {}, undo: async () => {} },
  /** The same for a machine whose memory is kept with a snapshot, and that goes on; without `agent` once it does. */
  memory: { isKept: true, make: async () => {}, undo: async () => {} },
  /**
   * The same for a machine on its way to another host. After the ports: `handed` from the end of the handover on, or `moved`, the run id
   * that a source had before it takes the machine back, and id and endpoint of that host. The files of disks that go along come last.
   */
  move: { isKept: true, make: async () => {}, undo: async () => {} },
  /**
   * A machine on its way here: words are an empty one, and the source, an encoded HypervisorID in base64. Then `handed` once this host
   * may have become authoritative, or `own` once it has; and an encoded MoveEnd in base64.
   */
  incoming: { isKept: true, make: async (_, { bring }) => await bring?.(), undo: async () => {} },
  /** A device that was unplugged for a while: words are its key, and an encoded PlugRequest in base64. */
  replug: { make: async () => {}, undo: async () => {} },
  /** The guest is to be told of its restore: words are `revert` or empty, a ResumedRequest in base64, and pairs of a clone's addresses. */
  repair: { make: async () => {}, undo: async () => {} },
}

const ORDER: readonly string[] = Object.keys(STEPS)

/** Does the steps in the order of the table. They must have been written down. */
export async function makeSteps(
  context: StepContext,
  planned: readonly PlannedStep[],
  record: InstanceRecord,
): Promise<void> {
  for (const step of planned) await STEPS[step.step].make(context, step, record)
}

/**
 * Undoes the steps, the last ones of the table first, and returns those that are undone. Never throws: a failing undo is
 * logged, and its step stays written down.
 */
export async function undoSteps(
  context: StepContext,
  steps: readonly StepRecord[],
): Promise<readonly StepRecord[]> {
  const undone: StepRecord[] = []
  for (const step of steps.toSorted((a, b) => ORDER.indexOf(b.step) - ORDER.indexOf(a.step))) {
    // What is not undone is found again by the folder.
    if (step.step === 'folder' && undone.length < steps.length - 1) continue
    try {
      if (isStepName(step.step)) await STEPS[step.step].undo(context, step.words)
      undone.push(step)
    } catch (error) {
      context.log.warn('undo step failed', { step: step.step, error: messageOf(error) })
    }
  }
  return undone
}

export function connectMachine(context: StepContext, holder: Holder): Promise<Machine> {
  return Machine.connect({ ...context, holder, signal: context.ending() })
}

/** Whether the step outlasts a stop. */
export function isKept({ step }: StepRecord): boolean {
  return isStepName(step) && STEPS[step].isKept === true
}

function isStepName(name: string): name is StepName {
  return Object.hasOwn(STEPS, name)
}

async function startChild(context: StepContext, plan: ChildPlan): Promise<HeldChild> {
  try {
    return await answer(context, holderOf(context).start(plan))
  } catch (error) {
    throw error instanceof AgentError ? explainStart(error, context.folder, plan) : error
  }
}

async function endHolder(context: StepContext): Promise<void> {
  const { folder, holders } = context
  const found = context.holder ?? answer(context, holders.find(folder))
  context.holder = undefined
  const holder = await Promise.resolve(found).catch(() => answer(context, holders.kill(folder)))
  if (holder) await endRunning(context, holder)
  // A holder that was killed leaves its socket.
  await rm(join(folder, 'holder.sock'), { force: true })
}

function holderOf({ holder }: StepContext): Holder {
  if (holder !== undefined) return holder
  throw new AgentError('INTERNAL', 'no holder, want the step `holder` first')
}

function present<T>(value: T | undefined): T {
  if (value !== undefined) return value
  throw new AgentError('INTERNAL', 'a step without what it needs')
}
