import { AgentError, messageOf } from '../../../base/errors.ts'
import { State } from '../../../gen/microvm/instance/v1/instance.ts'
import { HypervisorID, type MigrationProtocol, MigrationProtocol_Qemu } from '../../../gen/vm.ts'
import type { MachineInstance } from '../../instance/instance.ts'
import type { Arrival, HostMoves } from '../../instance/moves.ts'
import { instanceIdOf, namespaceOf, tenantOf } from '../../instance/moving/only-vm.ts'
import { Timeline } from '../../instance/record/timeline.ts'
import { specKey } from '../../spec/spec-key.ts'
import type { AtStep } from '../faults.ts'
import type { HostFacts } from '../manifest.ts'
import type { MoveFigures } from '../move-figures.ts'
import { forecast } from './forecast.ts'
import { HANDOVER_VERSION, isOf, isSame, type MoveHost, refused } from './move-host.ts'
import { move } from './source.ts'
import { arrive, readPlan } from './target.ts'

interface Parts {
  readonly host: MoveHost
  readonly facts: () => Promise<HostFacts>
  readonly figures: MoveFigures
  readonly atStep: (timeline: Timeline) => AtStep
}

/** A source that has agreed on a way, and until when it may begin the handover. */
interface Agreed {
  readonly us: HypervisorID
  readonly until: number
}

export function openHostMoves({ host, facts, figures, atStep }: Parts): HostMoves {
  const agreed = new Map<string, Agreed>()
  return {
    migrate: async (instance, request, how) => {
      const parts = { host, facts: await facts() }
      if (request.dryRun) return { ...NOTHING, forecast: await forecast(instance, request, parts) }
      const timeline = new Timeline('move')
      const work = () => move(instance, request, { ...parts, atStep: atStep(timeline) }, how)
      const moved = await figures.counted(instance, timeline, work)
      return { ...NOTHING, moved: { ...moved, operation: moved.operation ?? timeline.operation() } }
    },
    awaiting: async (target) => ({
      ...{ target, instanceId: instanceIdOf({ instanceId: '' }, host.only), runId: await host.nextRunId() },
      awaiting: { source: target.source, sinceMs: BigInt(Date.now()) },
      ...{ current: State.AWAITING, desired: State.AWAITING },
    }),
    watchAwaiting: (instance) => watchAwaiting(instance, host),
    start: async (instance, { supportedMigrationProtocol, us = HypervisorID.create() }, from) => {
      if (!isOf(from, us))
        throw new AgentError(
          'PERMISSION_DENIED',
          `us.pod_name: ${us.podName.slice(0, 128)}: not of host ${from}`,
        )
      if (instance.record.current !== State.AWAITING)
        throw refused(`instance ${instance.key}: awaits no machine`)
      if (instance.record.properties?.tenant !== tenantOf(us, host.only))
        throw refused(`instance ${instance.key}: of another tenant than ${us.namespace}'s`)
      await checkRuns(us, host)
      const protocol = chosen(supportedMigrationProtocol, host)
      agreed.set(instance.key, { us, until: performance.now() + host.settings.beginMs })
      return { migrationProtocol: protocol }
    },
    checkSource: (instance, from) => checkSource(instance, from, host),
    begin: async (requests, from) => {
      const { plan, reader } = await readPlan(requests, host.settings.beginMs)
      const { us = HypervisorID.create() } = plan
      const key = specKey(us.vmName)
      const known = agreed.get(key)
      if (!isOf(from, us) || known === undefined || !isSame(known.us, us) || known.until < performance.now())
        throw refused(
          `instance ${key}: no move from ${us.podName.slice(0, 128)} was agreed on, want StartMigration before`,
        )
      agreed.delete(key)
      const arrival: Arrival = {
        key,
        take: async (instance, send, signal, checkOwner) => {
          if (instance.record.current !== State.AWAITING) throw refused(`instance ${key}: awaits no machine`)
          const timeline = new Timeline('arrival')
          const parts = { host, facts: await facts(), atStep: atStep(timeline), checkOwner }
          await figures.counted(instance, timeline, () =>
            arrive(instance, { plan, reader }, parts, send, signal),
          )
        },
      }
      return arrival
    },
    drain: (isDraining) => figures.drain(() => host.drain(isDraining)),
    hosts: async () =>
      (await host.controller.listHosts()).map(({ cpuModels: _, sharedFolders: __, ...each }) => ({
        ...each,
        own: each.id === host.id,
      })),
  }
}

async function checkRuns(us: HypervisorID, { controller }: MoveHost): Promise<void> {
  const { authoritative } = await controller.getVm({ namespace: us.namespace, name: us.vmName })
  if (!isSame(authoritative, us))
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

const NOTHING = { step: '', doneBytes: 0n, totalBytes: 0n, moved: undefined, forecast: undefined } as const

/** The first protocol that this version speaks, with the constraints that it has understood. */
function chosen(offered: readonly MigrationProtocol[], { endpoint }: MoveHost): MigrationProtocol {
  for (const { qmeuBlock } of offered) {
    if (qmeuBlock === undefined) continue
    const { constraintHandover, constraintTls } = qmeuBlock
    // Memory alone comes without this host's part of the machine.
    if (constraintHandover === 0 || constraintHandover > HANDOVER_VERSION || !constraintTls) continue
    return {
      qmeuBlock: MigrationProtocol_Qemu.fromPartial({
        ...{ constraintHandover, constraintTls },
        // QEMU's own addresses follow in the handover.
        negotiatedEndpoint: endpoint,
      }),
    }
  }
  throw new AgentError(
    'INVALID_ARGUMENT',
    `supported_migration_protocol: none that this host speaks, want qmeu_block with constraint_tls and constraint_handover ${HANDOVER_VERSION}`,
  )
}

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
