import { AgentError } from '../../../base/errors.ts'
import {
  type MigrateInstanceRequest,
  type MoveForecast,
  State,
} from '../../../gen/microvm/instance/v1/instance.ts'
import {
  EnsureMigrationTargetResponse_Action as Action,
  EnsureMigrationTargetRequest,
} from '../../../gen/vm.ts'
import { hasAgentWay } from '../../instance/connect-agent.ts'
import { specificationOf } from '../../instance/devices/plug.ts'
import type { MachineInstance } from '../../instance/instance.ts'
import { checkSavable } from '../machine-state.ts'
import type { HostFacts } from '../manifest.ts'
import { checkSuspend } from '../saving/check-suspend.ts'
import { obstaclesOf } from './check-move.ts'
import type { MoveHost } from './move-host.ts'
import { announce } from './outbound.ts'
import { identify } from './source.ts'

/** What a move would meet. Nothing is changed but what the controller knows of the machine. */
export async function forecast(
  instance: MachineInstance,
  request: MigrateInstanceRequest,
  { host, facts }: { readonly host: MoveHost; readonly facts: HostFacts },
): Promise<MoveForecast> {
  const { qmp } = instance.machine()
  const wasRunning = instance.record.current === State.RUNNING
  const hasAgent = !request.withoutAgent && hasAgentWay(instance)
  const obstacles = [...obstaclesOf(instance)]
  const found = async (work: Promise<unknown>) => {
    await work.catch((error) => {
      if (!(error instanceof AgentError) || error.code !== 'FAILED_PRECONDITION') throw error
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
  await announce(instance, { host, us, facts })
  const asked = EnsureMigrationTargetRequest.fromPartial({ us, toHost: request.toHost, dryRun: true })
  const answer = await host.controller.ensureMigrationTarget(asked)
  if (answer.action !== Action.ACTION_LIVE_MIGRATE) obstacles.push(`no live migration: ${answer.reason}`)
  const memoryBytes = (specificationOf(instance).board?.memoryMib ?? 0n) * 2n ** 20n
  const { bandwidthBytesPerSecond } = host.settings.bulk
  return {
    ...{ host: answer.host, obstacles, memoryBytes, diskBytes: 0n },
    expectedMs: (memoryBytes * 1000n) / BigInt(bandwidthBytesPerSecond),
  }
}
