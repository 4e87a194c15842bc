import { AgentError, messageOf } from '../../../base/errors.ts'
import { State } from '../../../gen/microvm/instance/v1/instance.ts'
import { HypervisorID } from '../../../gen/vm.ts'
import type { MachineInstance } from '../../instance/instance.ts'
import type { Arrival, HostMoves } from '../../instance/moves.ts'
import { instanceIdOf, isOf, namespaceOf, tenantOf } from '../../instance/moving/only-vm.ts'
import { Timeline } from '../../instance/record/timeline.ts'
import { specKey } from '../../spec/spec-key.ts'
import { keepPort, plainAddress } from '../bulk/sockets.ts'
import type { AtStep } from '../faults.ts'
import type { HostFacts } from '../manifest.ts'
import type { MoveFigures } from '../move-figures.ts'
import { Agreements } from './agreements.ts'
import { isAuthoritative } from './authority.ts'
import { forecast } from './forecast.ts'
import { readPlan } from './frames.ts'
import { type MoveHost, reachedAt, refused } from './move-host.ts'
import { choose } from './protocol.ts'
import { move } from './source.ts'
import { arrive } from './target.ts'

interface Parts {
  readonly host: MoveHost
  readonly facts: () => Promise<HostFacts>
  readonly figures: MoveFigures
  readonly atStep: (timeline: Timeline) => AtStep
}

export function openHostMoves(parts: Parts): HostMoves {
  const { host } = parts
  const open = new Set<Promise<unknown>>()
  const counted: Counted = async (instance, timeline, work) => {
    const move = parts.figures.counted(instance, timeline, work)
    open.add(move)
    return await move.finally(() => open.delete(move))
  }
  return {
    ...departures(parts, counted),
    ...arrivals(parts, counted),
    awaiting: async (target) => ({
      ...{ target, instanceId: instanceIdOf({ instanceId: '' }, host.only), runId: await host.nextRunId() },
      awaiting: { source: target.source, sinceMs: BigInt(Date.now()) },
      ...{ current: State.AWAITING, desired: State.AWAITING },
    }),
    watchAwaiting: (instance) => watchAwaiting(instance, host),
    checkSource: (instance, from) => checkSource(instance, from, host),
    dial: ({ endpoint, host: id }, signal) => host.dial(endpoint, id, signal),
    settled: async () => void (await Promise.allSettled(open)),
    drain: (isDraining) => parts.figures.drain(() => host.drain(isDraining)),
    hosts: async () =>
      (await host.controller.listHosts()).map(({ cpuModels: _, sharedFolders: __, ...each }) => ({
        ...each,
        own: each.id === host.id,
      })),
  }
}

/** Runs a move, whose end is waited for. */
type Counted = MoveFigures['counted']

function departures({ atStep, facts, host }: Parts, counted: Counted): Pick<HostMoves, 'migrate'> {
  const speed = { bytesPerSecond: ASSUMED_BYTES_PER_SECOND }
  return {
    migrate: async (instance, request, how) => {
      const parts = { host, facts: await facts(), speed }
      if (request.dryRun)
        return { ...NOTHING, forecast: await forecast(instance, request, parts, how.signal) }
      const timeline = new Timeline('move')
      const work = () => move(instance, request, { ...parts, atStep: atStep(timeline) }, how)
      const moved = await counted(instance, timeline, work)
      return { ...NOTHING, moved, operation: timeline.operation() }
    },
  }
}

function arrivals({ atStep, facts, host }: Parts, counted: Counted): Pick<HostMoves, 'start' | 'begin'> {
  const agreements = new Agreements(host.settings.beginMs, host.closing)
  return {
    start: async (instance, { dryRun, supportedMigrationProtocol, us = HypervisorID.create() }, from) => {
      checkStart(instance, us, from, host)
      // The controller may not have been told of this run of the source.
      if (dryRun) await checkSource(instance, from, host)
      else await checkRuns(us, host)
      const { disks, protocol } = choose(supportedMigrationProtocol, instance.record.target)
      const negotiatedExport = disks.map(({ key }) => ({ key, name: key }))
      if (dryRun) return { migrationProtocol: { qmeuBlock: { ...protocol, negotiatedExport } } }
      const port = disks.length === 0 ? undefined : await keepPort(host.address)
      agreements.add(instance.key, { us, disks, port })
      const negotiated = {
        // QEMU's own address follows in the handover.
        negotiatedEndpoint: host.endpoint,
        negotiatedNbdEndpoint: port === undefined ? '' : reachedAt(host, port.endpoint.port),
        negotiatedExport,
      }
      return { migrationProtocol: { qmeuBlock: { ...protocol, ...negotiated } } }
    },
    begin: async (requests, { address, id: from }) => {
      const { plan, reader } = await readPlan(requests, host.settings.beginMs)
      const { us = HypervisorID.create() } = plan
      const key = specKey(us.vmName)
      const agreement = agreements.take(key, us, from)
      const given = { plan, reader, agreement, address: plainAddress(address) }
      const take: Arrival['take'] = async (instance, send, { checkOwner, signal }) => {
        if (instance.record.current !== State.AWAITING) throw refused(`instance ${key}: awaits no machine`)
        const timeline = new Timeline('arrival')
        const parts = { host, facts: await facts(), atStep: atStep(timeline), checkOwner }
        await counted(instance, timeline, () => arrive(instance, given, parts, { send, signal }))
      }
      return { key, take, close: () => agreement.port?.close() }
    },
  }
}

function checkStart(instance: MachineInstance, us: HypervisorID, from: string, { only }: MoveHost): void {
  if (!isOf(from, us))
    throw new AgentError('PERMISSION_DENIED', `us.pod_name: ${us.podName.slice(0, 128)}: not of host ${from}`)
  if (instance.record.current !== State.AWAITING) throw refused(`instance ${instance.key}: awaits no machine`)
  if (instance.record.properties?.tenant !== tenantOf(us, only))
    throw refused(`instance ${instance.key}: of another tenant than ${us.namespace}'s`)
}

async function checkRuns(us: HypervisorID, host: MoveHost): Promise<void> {
  if (!(await isAuthoritative({ us, host })))
    throw refused(`us: ${us.podName.slice(0, 128)} does not run the machine, says the controller`)
}

async function checkSource(
  { key, record: { properties } }: MachineInstance,
  from: string,
  { controller, only }: MoveHost,
): Promise<void> {
  const namespace = namespaceOf(properties?.tenant, only)
  const { authoritative } = await controller.getVm({ namespace, name: key })
  if (authoritative === undefined || !isOf(from, authoritative))
    throw new AgentError('PERMISSION_DENIED', `instance ${key}: awaits no machine of host ${from}`)
}

const NOTHING = {
  ...{ step: '', doneBytes: 0n, totalBytes: 0n },
  ...{ moved: undefined, forecast: undefined, operation: undefined },
} as const

/** Before the first move: 1 Gbit/s. */
const ASSUMED_BYTES_PER_SECOND = 125_000_000

/** Goes on awaiting a machine; without other hosts none can come. To be called in a change. */
export async function settleAwaiting(instance: MachineInstance, host: MoveHost | undefined): Promise<void> {
  if (host === undefined) await instance.finishRemoval()
  else watchAwaiting(instance, host)
}

/** Removes the instance when no machine has come in time. */
function watchAwaiting(instance: MachineInstance, { closing, settings }: MoveHost): void {
  const { context, record } = instance
  const ms = Math.max(0, Number(record.awaiting?.sinceMs ?? 0n) + settings.awaitMs - Date.now())
  const late = async () => {
    await context.clock.sleep(ms, AbortSignal.any([closing, instance.ending]))
    await instance.change(async () => {
      if (instance.record.current === State.AWAITING) await instance.finishRemoval()
    }, closing)
  }
  late().catch((error) =>
    context.log.debug('awaiting ended', { instance: instance.key, error: messageOf(error) }),
  )
}
