import { abortable } from '../../../base/abort.ts'
import { AgentError, type StatusCodeName } from '../../../base/errors.ts'
import {
  type MigrateInstanceRequest,
  type MoveForecast,
  State,
} from '../../../gen/microvm/instance/v1/instance.ts'
import {
  EnsureMigrationTargetResponse_Action as Action,
  type EnsureMigrationTargetResponse,
  type HypervisorID,
} from '../../../gen/vm.ts'
import { hasAgentWay } from '../../instance/connect-agent.ts'
import { specificationOf } from '../../instance/devices/plug.ts'
import type { MachineInstance } from '../../instance/instance.ts'
import { checkSavable } from '../machine-state.ts'
import type { HostFacts } from '../manifest.ts'
import { checkSuspend } from '../saving/check-suspend.ts'
import { filesOf, startMigration, vmOf } from './ask-target.ts'
import { obstaclesOf } from './check-move.ts'
import { layersLeft } from './disks-along.ts'
import type { MoveHost } from './move-host.ts'
import type { Speed } from './outbound.ts'
import type { Agreed } from './protocol.ts'
import { identify } from './source.ts'

/** What a move would meet. Nothing is changed here, at the controller or at the target. */
export async function forecast(
  instance: MachineInstance,
  request: MigrateInstanceRequest,
  { host, facts, speed }: { readonly host: MoveHost; readonly facts: HostFacts; readonly speed: Speed },
  signal: AbortSignal,
): Promise<MoveForecast> {
  const { qmp } = instance.machine()
  const wasRunning = instance.record.current === State.RUNNING
  const hasAgent = !request.withoutAgent && hasAgentWay(instance)
  const obstacles = [...obstaclesOf(instance, host)]
  const found = async (
    work: Promise<unknown>,
    codes: readonly StatusCodeName[] = ['FAILED_PRECONDITION'],
  ) => {
    await work.catch((error) => {
      if (!(error instanceof AgentError) || !codes.includes(error.code)) throw error
      obstacles.push(error.message)
    })
  }
  let vsock: string | undefined
  await found(
    checkSuspend(instance, { wasRunning, hasAgent }).then((key) => {
      vsock = key
    }),
  )
  if (vsock === undefined) await found(checkSavable(qmp, instance.ending))
  const us = await identify(instance, host)
  const { toHost } = request
  const asked = async () => {
    const vm = await vmOf(instance, { host, us, facts })
    return await host.controller.forecastTarget({ vm, toHost })
  }
  const answer = await abortable(asked(), signal)
  let disks: Agreed['disks'] = []
  if (answer.action !== Action.ACTION_LIVE_MIGRATE) obstacles.push(`no live migration: ${answer.reason}`)
  else
    await found(
      copiedDisks(instance, { host, target: answer, us }, signal).then((copied) => {
        disks = copied
      }),
      OF_TARGET,
    )
  obstacles.push(...layersLeft(instance.record, disks))
  const diskBytes = BigInt(disks.reduce((sum, { sizeBytes }) => sum + sizeBytes, 0))
  const memoryBytes = (specificationOf(instance).board?.memoryMib ?? 0n) * 2n ** 20n
  const speedBytes = Math.min(speed.bytesPerSecond, host.settings.bulk.bandwidthBytesPerSecond)
  const expectedMs = BigInt(Math.ceil((Number(memoryBytes + diskBytes) * 1000) / Math.max(1, speedBytes)))
  return { ...{ host: answer.host, obstacles, memoryBytes, diskBytes }, expectedMs }
}

/** Codes of what keeps a target from taking the machine; one that does not answer, or refuses this host, is no fault of the call. */
const OF_TARGET = ['FAILED_PRECONDITION', 'UNAVAILABLE', 'DEADLINE_EXCEEDED', 'PERMISSION_DENIED'] as const

interface Asked {
  readonly host: MoveHost
  readonly us: HypervisorID
  readonly target: Pick<EnsureMigrationTargetResponse, 'host' | 'targetEndpoint'>
}

/** The disks that the target has other files for. One that does not await the machine yet has none. */
async function copiedDisks(
  instance: MachineInstance,
  { host, us, target: { host: name, targetEndpoint } }: Asked,
  signal: AbortSignal,
): Promise<Agreed['disks']> {
  const files = await filesOf(instance, signal)
  const connection = await host.dial(targetEndpoint, name, signal)
  try {
    const limits = { timeoutMs: host.settings.readyMs, signal }
    const question = { connection, dryRun: true, files, name, us } as const
    return (await startMigration(instance, question, limits)).disks
  } catch (error) {
    if (error instanceof AgentError && error.code === 'NOT_FOUND') return []
    throw error
  } finally {
    connection.close()
  }
}
