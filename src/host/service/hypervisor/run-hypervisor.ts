import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { AgentError } from '../../../base/errors.ts'
import {
  ChangeStateRequest_Change as Change,
  type EnsureInstanceRequest,
  Lease,
  type Specification,
} from '../../../gen/microvm/instance/v1/instance.ts'
import { VMMetadata, type VMSpec, VMSpec_StartMode } from '../../../gen/vm.ts'
import type { Instances } from '../../instance/instances.ts'
import { NAMESPACE } from '../../instance/moving/only-vm.ts'
import { findDiskPlace } from '../../root-disk/disk-place.ts'
import type { ImageProgress } from '../../root-disk/disk-writing.ts'
import { parseImageUrl } from '../../root-disk/image-url.ts'
import { prepareRootDisk, refuseUnfinishedDisk } from '../../root-disk/prepare-root-disk.ts'
import { specFromProto } from '../../spec/from-proto.ts'
import { specKey } from '../../spec/spec-key.ts'
import { endpointText, parseEndpoint } from '../../tls/endpoint.ts'
import type { Configuration } from '../configuration.ts'
import { type Daemon, startDaemon } from '../daemon.ts'
import { documentFor } from './hypervisor-document.ts'
import { invalid, machineOf, metadataOf, rootFileOf } from './hypervisor-machine.ts'
import {
  awaitMachine,
  CALLER,
  type EndSignals,
  endAtSignals,
  endOf,
  lastChange,
  type MachineEnd,
} from './machine-end.ts'
import type { AwaitedMachine } from './only-machine.ts'
import { nextRunId } from './run-id.ts'
import { isAwaited, readVmSpec } from './vm-spec.ts'

export interface HypervisorOptions extends EndSignals {
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
  /** How long a machine of SM_INCOMING_MIGRATION is awaited. */
  readonly waitMs: number
  /** With the table [host] where VM_SPEC names a controller. */
  readonly configuration: Configuration
  /** MICROVM_ACCEL. */
  readonly acceleration: string | undefined
}

/**
 * Runs the one machine of a VMSpec until its guest has ended, it has moved to another host, or a signal fires. Throws
 * INVALID_ARGUMENT for what VM_SPEC, the machine and the configuration say, and other AgentErrors for what goes wrong before the
 * machine runs.
 */
export async function runHypervisor(options: HypervisorOptions): Promise<MachineEnd> {
  const { stateFolder, log, stop, listen, acceleration } = options
  const vm = readVmSpec(options.vmSpec)
  const configuration = asHost(vm, options.configuration)
  const plan = await planOf(vm, options)
  const key = specKey(vm.name)
  const lease = configuration.host && Lease.fromPartial({ mode: vm.leaseMode })
  const awaited: AwaitedMachine | undefined = isAwaited(vm)
    ? { backends: backendsOf(plan), lease }
    : undefined
  let after = 0n
  const prepareAll = async (instances: Instances) => {
    const runId = await nextRunId(stateFolder, nowNs())
    log.info('hypervisor', { vm: vm.name, namespace: vm.namespace, run: runId })
    await endBefore(instances, awaited === undefined ? plan : { init: {} }, stop)
    if (plan.metadata !== undefined) await writeFile(plan.metadata.path, plan.metadata.bytes, { mode: 0o600 })
    await prepare(vm, plan.root, options)
    after = await lastChange(instances)
  }
  let daemon: Daemon | undefined
  try {
    daemon = await startDaemon({
      stateFolder,
      socket: join(stateFolder, 'hypervisor.sock'),
      configuration,
      mock: false,
      only: { name: key, namespace: vm.namespace || NAMESPACE, listen, awaited, prepare: prepareAll },
      acceleration,
      log,
    })
    if (stop.aborted) return {}
    const properties = { key, tenant: '', labels: {}, lease }
    const end = await ranIn(daemon.instances, {
      ...options,
      properties,
      plan,
      isComing: awaited !== undefined,
      after,
    })
    if (end.moved !== undefined)
      log.info('machine moved', { host: end.moved.host, endpoint: end.moved.endpoint })
    // Those who move it, and those who are attached to it, hear of that.
    if (end.moved !== undefined || awaited !== undefined) await daemon.told()
    if (end.isOwn) await daemon.release()
    return end
  } catch (error) {
    if (stop.aborted && error === stop.reason) return {}
    // A start that has failed may have been made known.
    await daemon?.release()
    throw error
  } finally {
    await daemon?.close()
  }
}

interface Run extends EndSignals {
  readonly properties: NonNullable<EnsureInstanceRequest['properties']>
  readonly plan: HypervisorPlan
  readonly isComing: boolean
  /** The last change of the run before. */
  readonly after: bigint
  readonly waitMs: number
}

async function ranIn(instances: Instances, run: Run): Promise<MachineEnd> {
  const { isComing, properties } = run
  const { key, lease } = properties
  const begun = isComing ? await awaitMachine(instances, key, run) : await started(instances, run)
  if (typeof begun !== 'bigint') return { reason: begun, isOwn: !isComing }
  const ended = endOf(instances, key, { after: begun, hasRun: !isComing })
  const stopListening = endAtSignals(instances, key, { ...run, isMovable: lease !== undefined })
  return await ended.finally(stopListening)
}

/**
 * Makes the machine and lets it run. Resolves with the number of a change before it ran, or with undefined when a signal has ended
 * that: a guest that has not run needs no time.
 */
async function started(
  instances: Instances,
  { kill, plan, properties, stop }: Run,
): Promise<bigint | undefined> {
  const { key } = properties
  const signal = AbortSignal.any([stop, kill])
  const end = async () => {
    try {
      await instances.changeState({ key, change: Change.KILL, graceMs: 0 }, CALLER)
    } catch (error) {
      if (!(error instanceof AgentError) || error.code !== 'NOT_FOUND') throw error
    }
  }
  // It is asked again below, and fails there.
  const onSignal = () => void end().catch(() => {})
  signal.addEventListener('abort', onSignal, { once: true })
  try {
    signal.throwIfAborted()
    const { sequence } = await instances.ensure({ properties, ...plan.init }, CALLER)
    signal.throwIfAborted()
    await instances.changeState({ key, change: Change.RUN, graceMs: 0 }, CALLER)
    return sequence
  } catch (error) {
    if (!signal.aborted) throw error
    await end()
    return undefined
  } finally {
    signal.removeEventListener('abort', onSignal)
  }
}

/** The configuration of a process that is a host of its own, by `controller_endpoint`. Throws INVALID_ARGUMENT. */
function asHost({ controllerEndpoint }: VMSpec, { host, ...configuration }: Configuration): Configuration {
  if (configuration.tenants.length > 0) throw invalid('--config: tenants: a hypervisor has none')
  const first = parseEndpoint(controllerEndpoint)
  if (first === undefined && host === undefined) return configuration
  if (host === undefined)
    throw invalid(
      'VM_SPEC: controller_endpoint: want --config FILE with [host], the name and the certificate of this process',
    )
  if (first === undefined) throw invalid('--config: host: want controller_endpoint in VM_SPEC with it')
  const others = host.controllers.filter((each) => endpointText(each) !== endpointText(first))
  return { ...configuration, host: { ...host, controllers: [first, ...others] } }
}

/** What of the machine is this host's own. */
function backendsOf({ init: { specification } }: HypervisorPlan): AwaitedMachine['backends'] {
  const all = Object.entries(specification?.backends ?? {})
  return Object.fromEntries(all.filter(([, { content, file, tap }]) => content ?? file ?? tap))
}

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
async function endBefore(
  instances: Instances,
  { init: { document } }: Pick<HypervisorPlan, 'init'>,
  stop: AbortSignal,
): Promise<void> {
  for (const { properties } of instances.list(CALLER)) {
    const key = properties?.key ?? ''
    // Another host may run the machine: then a controller is asked.
    const present = await instances.get(key, { ...CALLER, signal: stop }).catch((error) => {
      if (!(error instanceof AgentError) || error.code !== 'NOT_FOUND') throw error
    })
    if (present === undefined) continue
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
