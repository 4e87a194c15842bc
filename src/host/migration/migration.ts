import { randomUUID } from 'node:crypto'
import { rm } from 'node:fs/promises'
import { basename, join } from 'node:path'
import { neverAborted } from '../../base/abort.ts'
import { AgentError, messageOf } from '../../base/errors.ts'
import type { Logger } from '../../base/log.ts'
import { type SavedInit, type SavedMachine, State } from '../../gen/microvm/instance/v1/instance.ts'
import { statusOf } from '../../rpc/status.ts'
import { settleReplugs } from '../instance/devices/replug.ts'
import { asRecorded } from '../instance/documents/hidden-files.ts'
import type { MachineInstance } from '../instance/instance.ts'
import type { Holders } from '../instance/machine/steps.ts'
import type { Moves } from '../instance/moves.ts'
import { readClaim, resumedAlready } from '../instance/record/saved-claim.ts'
import { Timeline } from '../instance/record/timeline.ts'
import { type CloneParts, openClone } from './clone.ts'
import type { AtStep } from './faults.ts'
import { type Keepers, openKeepers } from './keepers.ts'
import { type HostFacts, readManifest } from './manifest.ts'
import { openHostMoves, settleAwaiting } from './move/host-moves.ts'
import type { MoveHost } from './move/move-host.ts'
import { settleMove } from './move/source.ts'
import { settleArrival } from './move/target.ts'
import { MoveFigures, type Spans } from './move-figures.ts'
import { isNewClone, openSaved, repairOrRemove, resume, settleRepair, settleResume } from './resume.ts'
import {
  checkRemovable,
  describeSaved,
  hostCpu,
  isOpen,
  isSaved,
  namesIn,
  PASSING,
  removeLeft,
  removeSaved,
  removeWork,
  savedIn,
  sweep,
} from './saved-folder.ts'
import { keepMemory } from './saving/keep-memory.ts'
import { openKept, revert, settleRevert } from './saving/revert.ts'
import { undoSaving } from './saving/steps.ts'
import { type SavingParts, suspend } from './saving/suspend.ts'

/** What this host has for machines as files. */
export interface MigrationHost {
  readonly stateFolder: string
  readonly acceleration: string
  readonly qemuVersion: () => Promise<string>
  readonly holders: Holders
  readonly log: Logger
  /** This host among others. */
  readonly among?: MoveHost | undefined
  /** Undefined while tracing is off. */
  readonly spans?: Spans | undefined
}

/** Below the state folder; what the administrator's own instances are saved as is no tenant's. */
const STORE = 'saved'
const OWN = '+own'

export function openMigration(
  { acceleration, among, holders, log, qemuVersion, spans, stateFolder }: MigrationHost,
  atStep: AtStep = async () => {},
): Moves {
  const store = join(stateFolder, STORE)
  const storeOf = (tenant: string) => join(store, tenant === '' ? OWN : tenant)
  const folderOf = ({ folder, name }: Pick<SavedInit, 'folder' | 'name'>, tenant: string) =>
    folder || join(storeOf(tenant), name)
  const host = () => hostFacts({ acceleration, qemuVersion })
  const partsOf = async (timeline: Timeline, folder: string) => ({
    ...{ folder, host: await host() },
    atStep: timed(timeline, atStep),
  })
  const figures = new MoveFigures(spans)
  const keepers = openKeepers({ stateFolder, holders, log })
  const clones = { keepers, checked: new Map<string, string>() }
  const passing = `${PASSING}${randomUUID()}-`
  /** The folders of saved machines that are being made or removed. */
  const held = new Set<string>()
  async function hold<Result>(folder: string, work: () => Promise<Result>): Promise<Result> {
    if (held.has(folder)) throw new AgentError('ALREADY_EXISTS', `${folder}: being saved or removed`)
    held.add(folder)
    return await work().finally(() => held.delete(folder))
  }
  const toldTo = (tenant = '') => withoutStore(tenant === '' ? '' : `${storeOf(tenant)}/`)
  const storesIn = async () => (await namesIn(store)).map((name) => join(store, name))
  removeLeftOver(storesIn, { isOwn: (name) => name.startsWith(passing), keepers, log })
  return {
    suspend: async (instance, request, caller) => {
      const tenant = instance.record.properties?.tenant ?? ''
      const folder = folderOf(request, tenant)
      const timeline = new Timeline('suspend')
      const parts = await partsOf(timeline, folder)
      const told = toldTo(tenant)
      const work = () => suspend(instance, request, parts, caller).catch(asRecorded(instance)).catch(told)
      return await hold(folder, () => figures.counted(instance, timeline, work)).catch(told)
    },
    ...{
      ...movesOfSnapshots({ atStep, figures, partsOf, toldTo }),
      ...movesOfPassing(passing, storeOf, clones),
    },
    ...{ savedOn: async (path) => cloneOn(path, await storesIn(), log), freeMemory: keepers.endUnused },
    open: async (init, tenant) => {
      const timeline = new Timeline('resume')
      const parts = await partsOf(timeline, folderOf(init, tenant))
      const content = await openSaved(init, parts).catch(toldTo(tenant))
      timeline.stoodSince(content.manifest.standing)
      return { ...content, timeline }
    },
    openClone: async (init, tenant, { withoutAgent }) => {
      const timeline = new Timeline('clone')
      const own = await partsOf(timeline, folderOf(init, tenant))
      const content = await openClone(init, { ...own, ...clones, withoutAgent }).catch(toldTo(tenant))
      return { ...content, timeline }
    },
    resume: (instance, content, init, caller) => {
      const { timeline = new Timeline('resume') } = content
      return figures.counted(instance, timeline, async () => {
        const told = toldTo(instance.record.properties?.tenant)
        await resume(instance, content, init, { atStep: timed(timeline, atStep), caller }).catch(told)
        // Its memory was taken away, so there will be no clones.
        if (content.macs === undefined) await endClones(clones, content.record.savedId ?? '')
      })
    },
    ...{ repair: repairOrRemove, metrics: () => figures.print(), settle: settleWith(log, among) },
    refuseGone: (init, tenant) => refuseGone(folderOf(init, tenant)).catch(toldTo(tenant)),
    hosts:
      among &&
      openHostMoves({ host: among, figures, facts: host, atStep: (timeline) => timed(timeline, atStep) }),
    list: async (tenant) =>
      describe(tenant === undefined ? await storesIn() : [storeOf(tenant)], log).catch(toldTo(tenant)),
    remove: async (name, tenant) => {
      const id = await removeNamed(storeOf(tenant), name, hold)
      if (id !== undefined) await endClones(clones, id)
    },
  }
}

/** Removes a saved machine of a store by `hold`, and resolves with its id; undefined for one whose manifest cannot be read. */
async function removeNamed(
  store: string,
  name: string,
  hold: (folder: string, remove: () => Promise<void>) => Promise<void>,
): Promise<string | undefined> {
  const folder = join(store, name)
  if (!(await savedIn(store)).includes(folder))
    throw new AgentError('NOT_FOUND', `saved machine ${name}: not found`)
  const manifest = await readManifest(folder).catch(() => undefined)
  await hold(folder, async () => {
    await checkRemovable(folder)
    await removeSaved(folder)
  })
  return manifest?.id
}

/** Removes in the background what earlier daemons have not removed to its end. */
function removeLeftOver(
  storesIn: () => Promise<readonly string[]>,
  {
    isOwn,
    keepers,
    log,
  }: {
    readonly isOwn: (name: string) => boolean
    readonly keepers: Keepers
    readonly log: Logger
  },
): void {
  storesIn()
    .then((stores) => Promise.all(stores.map((store) => sweep(store, isOwn))))
    .catch((error) => log.warn('saved machines not removed', { error: messageOf(error) }))
  keepers
    .endOthers(async () => {
      const all = await describe(await storesIn(), log)
      return new Set(all.flatMap(({ id, resumedAs }) => (resumedAs === '' ? [id] : [])))
    })
    .catch((error) => log.warn('keepers not ended', { error: messageOf(error) }))
}

/** The timeline has the steps, too. */
function timed(timeline: Timeline, atStep: AtStep): AtStep {
  return (operation, step) => {
    timeline.begin(step)
    return atStep(operation, step)
  }
}

async function refuseGone(folder: string): Promise<void> {
  await readManifest(folder)
  const claim = await readClaim(folder)
  if (claim !== undefined) throw resumedAlready(folder, claim)
}

/** What the state of a machine depends on here. */
export async function hostFacts({
  acceleration,
  qemuVersion,
}: Pick<MigrationHost, 'acceleration' | 'qemuVersion'>): Promise<HostFacts> {
  return { qemu: `QEMU ${await qemuVersion()}`, acceleration, cpu: hostCpu(acceleration) }
}

/** Memories of snapshots. */
function movesOfSnapshots({
  atStep,
  figures,
  partsOf,
  toldTo,
}: {
  readonly atStep: AtStep
  readonly figures: MoveFigures
  readonly partsOf: (timeline: Timeline, folder: string) => Promise<SavingParts>
  readonly toldTo: (tenant: string | undefined) => (error: unknown) => never
}): Pick<Moves, 'keep' | 'openKept' | 'revert'> {
  return {
    keep: async (instance, request, caller) => {
      const timeline = new Timeline('snapshot')
      const parts = await partsOf(timeline, request.folder)
      const told = toldTo(instance.record.properties?.tenant)
      const work = () => keepMemory(instance, request, parts, caller).catch(asRecorded(instance)).catch(told)
      return await figures.counted(instance, timeline, work)
    },
    openKept: async (folder) => {
      const timeline = new Timeline('revert')
      return { ...(await openKept(await partsOf(timeline, folder))), timeline }
    },
    revert: (instance, content, caller) => {
      const { timeline } = content
      const parts = { atStep: timed(timeline, atStep), caller }
      const work = () => revert(instance, content, parts).catch(asRecorded(instance))
      return figures.counted(instance, timeline, work)
    },
  }
}

/** Machines that are saved while clones of them are made. `begin` begins the names of those of this daemon. */
function movesOfPassing(
  begin: string,
  storeOf: (tenant: string) => string,
  clones: Parameters<typeof endClones>[0],
): Pick<Moves, 'passingOf' | 'endPassing'> {
  let count = 0
  return {
    passingOf: (tenant) => {
      count += 1
      const name = `${begin}${count}`
      return { name, folder: join(storeOf(tenant), name) }
    },
    endPassing: async (folder) => {
      const manifest = await readManifest(folder).catch(() => undefined)
      await rm(folder, { recursive: true, force: true })
      if (manifest !== undefined) await endClones(clones, manifest.id)
    },
  }
}

/** A tenant may not know where the host has its store. */
function withoutStore(path: string): (error: unknown) => never {
  return (error) => {
    if (path === '') throw error
    // Its causes, which an answer has too, are in the text.
    const { code, message } = statusOf(error)
    const text = message.replaceAll(path, '').replaceAll(path.slice(0, -1), 'the store')
    throw new AgentError(code, text)
  }
}

/** There will be no more of the saved machine. */
async function endClones(
  { checked, keepers }: Pick<CloneParts, 'checked' | 'keepers'>,
  id: string,
): Promise<void> {
  for (const name of [...checked.keys()].filter((each) => each.startsWith(id))) checked.delete(name)
  await keepers.end(id)
}

/** The name of a saved clone whose disk stands on the file. */
async function cloneOn(path: string, stores: readonly string[], log: Logger): Promise<string | undefined> {
  for (const folder of (await Promise.all(stores.map(savedIn))).flat())
    try {
      const { isClone, name, outside } = await readManifest(folder)
      const stands = outside.some((file) => file.backend !== '' && file.path === path)
      if (isClone && stands && (await isOpen(folder))) return name
    } catch (error) {
      log.warn('saved machine not read', { folder, error: messageOf(error) })
      // It may stand there.
      return basename(folder)
    }
  return undefined
}

/** The saved machines of stores; one that cannot be read is left out. */
async function describe(stores: readonly string[], log: Logger): Promise<readonly SavedMachine[]> {
  const folders = (await Promise.all(stores.map(savedIn))).flat()
  const all = folders.map(async (folder) => {
    try {
      return await describeSaved(folder, await readManifest(folder))
    } catch (error) {
      log.warn('saved machine not read', { folder, error: messageOf(error) })
      return []
    }
  })
  return (await Promise.all(all)).flat()
}

function settleWith(log: Logger, among: MoveHost | undefined): Moves['settle'] {
  return (instance, signal) => settle(instance, { log, among, signal })
}

async function settle(
  instance: MachineInstance,
  {
    log,
    among,
    signal,
  }: {
    readonly log: Logger
    readonly among: MoveHost | undefined
    readonly signal: AbortSignal | undefined
  },
): Promise<boolean> {
  const { context, recorded } = instance
  const find = (name: string) => recorded.steps.find(({ step }) => step === name)
  const [resumeStep, suspendStep] = [find('resume'), find('suspend')]
  const [revertStep, memoryStep] = [find('revert'), find('memory')]
  if (recorded.record.current === State.AWAITING) {
    await settleAwaiting(instance, among)
    return true
  }
  const [moveStep, incomingStep] = [find('move'), find('incoming')]
  if (incomingStep !== undefined && (await settleArrival(instance, incomingStep, among, signal))) return true
  if (moveStep !== undefined && (await settleMove(instance, moveStep, among, signal))) return true
  // Its call is made again, with who the guest is to be.
  if (find('clone') !== undefined) {
    await instance.finishRemoval()
    return true
  }
  if (resumeStep !== undefined && (await settleResume(instance, resumeStep))) return true
  if (revertStep !== undefined && (await settleRevert(instance, revertStep))) return true
  const { madeByClone, savedFolder, savedId } = recorded.record
  if (savedFolder !== '' && !madeByClone)
    await removeLeft(savedFolder, { id: savedId, folder: context.folder })
  if (suspendStep !== undefined) {
    const [, folder = '', id = ''] = suspendStep.words
    const isWhole = await isSaved(folder, id)
    if (isWhole || context.machine === undefined) await removeWork(folder, id)
    if (isWhole) {
      await instance.finishRemoval()
      return true
    }
    const set = context.machine === undefined ? {} : await undoSaving(instance, suspendStep)
    const text = 'the machine was not saved: the daemon has ended meanwhile'
    await recorded.note({ set, drop: [suspendStep], kind: 'state', text })
  }
  if (memoryStep !== undefined) {
    const [, folder = '', id = ''] = memoryStep.words
    await removeWork(folder, id)
    const set = context.machine === undefined ? {} : await undoSaving(instance, memoryStep)
    const text = 'the memory of the machine is no longer being kept'
    await recorded.note({ set, drop: [memoryStep], kind: 'state', text })
  }
  if (context.machine === undefined) return false
  const { machine } = context
  await settleReplugs(instance)
  void settleRepair(instance).catch((error) => {
    log.warn('guest not repaired', { instance: instance.key, error: messageOf(error) })
    if (!isNewClone(instance)) return
    // It may be the same as others; one that was stopped meanwhile boots anew.
    const removed = instance.change(async () => {
      if (context.machine === machine) await instance.finishRemoval()
    }, neverAborted)
    removed.catch((failure) => log.warn('clone not removed', { error: messageOf(failure) }))
  })
  return false
}
