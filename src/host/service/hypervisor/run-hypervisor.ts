import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { neverAborted } from '../../../base/abort.ts'
import type { Logger } from '../../../base/log.ts'
import {
  ChangeStateRequest_Change as Change,
  type EnsureInstanceRequest,
  type Specification,
  State,
} from '../../../gen/microvm/instance/v1/instance.ts'
import { VMMetadata, type VMSpec, VMSpec_StartMode } from '../../../gen/vm.ts'
import type { Caller, Instances } from '../../instance/instances.ts'
import { findDiskPlace } from '../../root-disk/disk-place.ts'
import type { ImageProgress } from '../../root-disk/disk-writing.ts'
import { parseImageUrl } from '../../root-disk/image-url.ts'
import { prepareRootDisk, refuseUnfinishedDisk } from '../../root-disk/prepare-root-disk.ts'
import { specFromProto } from '../../spec/from-proto.ts'
import { specKey } from '../../spec/spec-key.ts'
import { NO_CONFIGURATION } from '../configuration.ts'
import { startDaemon } from '../daemon.ts'
import { documentFor } from './hypervisor-document.ts'
import { machineOf, metadataOf, rootFileOf } from './hypervisor-machine.ts'
import { nextRunId } from './run-id.ts'
import { readVmSpec } from './vm-spec.ts'

export interface HypervisorOptions {
  /** VM_SPEC of the environment. */
  readonly vmSpec: string | undefined
  /** What VMSpec does not say: a specification, or the text of a document. */
  readonly machine: Specification | string
  readonly stateFolder: string
  /** A second socket of the API. */
  readonly listen: string | undefined
  /** The host's ends of the links, at most one of each family. */
  readonly peers: readonly string[]
  /** Of the initial image of a disk without a size. */
  readonly maxImageBytes?: number | undefined
  /** How long the guest may take after its power button was pressed. */
  readonly graceMs: number
  /** MICROVM_ACCEL. */
  readonly acceleration: string | undefined
  readonly log: Logger
  /** Presses the power button when it fires. */
  readonly stop: AbortSignal
  /** Ends the machine at once when it fires. */
  readonly kill: AbortSignal
}

/**
 * Runs the one machine of a VMSpec until its guest has ended or a signal fires. Resolves with the reason of an end that
 * neither the guest nor a signal has asked for. Throws INVALID_ARGUMENT or UNIMPLEMENTED for what VM_SPEC and the machine
 * say, and other AgentErrors for what goes wrong before the machine runs.
 */
export async function runHypervisor(options: HypervisorOptions): Promise<string | undefined> {
  const { stateFolder, log, stop, listen, acceleration } = options
  const vm = readVmSpec(options.vmSpec)
  const plan = await planOf(vm, options)
  const key = specKey(vm.name)
  const daemon = await startDaemon({
    stateFolder,
    socket: join(stateFolder, 'hypervisor.sock'),
    configuration: NO_CONFIGURATION,
    mock: false,
    only: { key, listen },
    acceleration,
    log,
  })
  try {
    const { instances } = daemon
    const runId = await nextRunId(stateFolder, nowNs())
    log.info('hypervisor', { vm: vm.name, namespace: vm.namespace, run: runId })
    await endBefore(instances, plan)
    if (plan.metadata !== undefined) await writeFile(plan.metadata.path, plan.metadata.bytes, { mode: 0o600 })
    await prepare(vm, plan.root, options)
    if (stop.aborted) return undefined
    const properties = { key, tenant: '', labels: {} }
    const { sequence } = await instances.ensure({ properties, ...plan.init }, CALLER)
    const ended = endOf(instances, key, sequence)
    await instances.changeState({ key, change: Change.RUN, graceMs: 0 }, CALLER)
    const stopListening = endAtSignals(instances, key, options)
    return reasonOf(await ended.finally(stopListening))
  } catch (error) {
    if (stop.aborted && error === stop.reason) return undefined
    throw error
  } finally {
    await daemon.close()
  }
}

const CALLER: Caller = { tenant: undefined, signal: neverAborted, inStep: () => {} }

interface HypervisorPlan {
  readonly init: Pick<EnsureInstanceRequest, 'specification' | 'document'>
  readonly root: string | undefined
  /** A file that the machine has; an instance of a document makes its own. */
  readonly metadata?: { readonly path: string; readonly bytes: Uint8Array }
}

/** All that can be refused before anything is made. */
async function planOf(
  vm: VMSpec,
  { machine, peers, stateFolder }: HypervisorOptions,
): Promise<HypervisorPlan> {
  const told = metadataOf(vm, peers)
  const isImageWanted = vm.mode === VMSpec_StartMode.SM_PREPARE_IMAGE
  if (isImageWanted) parseImageUrl(vm.initialImage?.url ?? '')
  if (typeof machine === 'string') {
    const { document, specification } = await documentFor(machine, vm, told)
    return { init: { document }, root: rootFileOf(specification, isImageWanted) }
  }
  const path = join(stateFolder, 'metadata.pb')
  const bytes = VMMetadata.encode(told).finish()
  const specification = machineOf(machine, vm, path)
  const root = rootFileOf(machine, isImageWanted)
  specFromProto(specification)
  return { init: { specification }, root, metadata: { path, bytes } }
}

/**
 * Ends the instance of the run before, whose processes have ended with it. That of the same document stays, so that its machine
 * is the same whatever an expansion of today would make.
 */
async function endBefore(instances: Instances, { init: { document } }: HypervisorPlan): Promise<void> {
  for (const { properties } of instances.list(CALLER)) {
    const key = properties?.key ?? ''
    const present = await instances.get(key, CALLER)
    if (document !== undefined && present.configurations?.document === document)
      await instances.changeState({ key, change: Change.KILL, graceMs: 0 }, CALLER)
    else await instances.remove(key, CALLER)
  }
}

function nowNs(): bigint {
  return BigInt(Math.round((performance.timeOrigin + performance.now()) * 1000)) * 1000n
}

/** Between two lines of progress. */
const PROGRESS_MS = 5000

/** Fills a new disk, or makes sure that an earlier run has not filled only a part of it. */
async function prepare(
  { mode, initialImage }: VMSpec,
  root: string | undefined,
  { stateFolder, log, stop, maxImageBytes }: HypervisorOptions,
): Promise<void> {
  if (root === undefined) return
  const { disk, stateFile } = await findDiskPlace(root, stateFolder)
  if (mode !== VMSpec_StartMode.SM_PREPARE_IMAGE) return await refuseUnfinishedDisk({ disk, stateFile })
  let shownMs = Number.NEGATIVE_INFINITY
  const progress = ({ receivedBytes, totalBytes, writtenBytes }: ImageProgress) => {
    if (performance.now() - shownMs < PROGRESS_MS) return
    shownMs = performance.now()
    log.info('initial image', { received: receivedBytes, total: totalBytes, written: writtenBytes })
  }
  const url = initialImage?.url ?? ''
  const limits = maxImageBytes === undefined ? {} : { imageBytes: maxImageBytes }
  const { bytes, sha256 } = await prepareRootDisk({ url, disk, stateFile, progress, limits, signal: stop })
  log.info('root disk prepared', { disk, bytes, sha256 })
}

interface End {
  readonly reason: string
}

/** Resolves once the machine has stopped after a change, or the instance is gone. */
async function endOf(instances: Instances, key: string, after: bigint): Promise<End> {
  for await (const { changes } of instances.watch({ after, once: false }, CALLER)) {
    for (const { key: of, kind, state } of changes) {
      if (of !== key) continue
      if (kind === 'removed') return { reason: '' }
      if (state === State.STOPPED || state === State.TERMINATED)
        return { reason: (await instances.get(key, CALLER)).reason }
    }
  }
  return { reason: '' }
}

/** What the log says of a guest that has ended by itself. */
const ENDED_BY_GUEST = 'the guest has shut down'

function reasonOf({ reason }: End): string | undefined {
  return reason === '' || reason === ENDED_BY_GUEST ? undefined : reason
}

/** Returns the function that ends the waiting. */
function endAtSignals(
  instances: Instances,
  key: string,
  { stop, kill, graceMs, log }: HypervisorOptions,
): () => void {
  const change = (to: Change, grace: number) => {
    instances
      .changeState({ key, change: to, graceMs: grace }, CALLER)
      .catch((error) => log.warn('machine not stopped', { error: String(error) }))
  }
  const onStop = () => change(Change.STOP, graceMs)
  const onKill = () => change(Change.KILL, 0)
  stop.addEventListener('abort', onStop, { once: true })
  kill.addEventListener('abort', onKill, { once: true })
  if (stop.aborted) onStop()
  if (kill.aborted) onKill()
  return () => {
    stop.removeEventListener('abort', onStop)
    kill.removeEventListener('abort', onKill)
  }
}
