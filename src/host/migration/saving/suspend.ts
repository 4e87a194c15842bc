import { randomUUID } from 'node:crypto'
import { join } from 'node:path'
import { AgentError, messageOf } from '../../../base/errors.ts'
import {
  type SavedMachine,
  State,
  type SuspendInstanceRequest,
} from '../../../gen/microvm/instance/v1/instance.ts'
import { hasAgentWay } from '../../instance/connect-agent.ts'
import { settleReplugs } from '../../instance/devices/replug.ts'
import type { MachineInstance } from '../../instance/instance.ts'
import type { Caller } from '../../instance/instances.ts'
import { refuseLease } from '../../instance/leases/check-lease.ts'
import { refuseUndecided } from '../../instance/moving/undecided.ts'
import { refuseAway } from '../../instance/snapshots/layer-users.ts'
import type { AtStep } from '../faults.ts'
import { endCallers } from '../guest.ts'
import { checkSavable, goOn } from '../machine-state.ts'
import { FILES, type HostFacts, readManifest } from '../manifest.ts'
import { copySparse, factsOf, syncFile } from '../memory-file.ts'
import { checkFree, describeSaved, publish } from '../saved-folder.ts'
import { checkSuspend } from './check-suspend.ts'
import { manifestOf, saveDisks, saveMemory, saveRings } from './saved-files.ts'
import { newSaving, type Saving } from './saving.ts'
import { microseconds, millisecondsOf, SAVING, type Step, save } from './steps.ts'

/** In this order; undone in the reverse order. After the last one there is a saved machine, and no other. */
const STEPS: readonly Step[] = [
  SAVING.quiesce,
  SAVING.detach,
  SAVING.unplug,
  SAVING.stop,
  SAVING.folder,
  {
    name: 'memory',
    make: (saving) =>
      saveMemory(saving, async (from, to) => {
        saving.files.set(FILES.memory, await copySparse(from, to))
      }),
  },
  {
    ...SAVING.devices,
    make: async (saving) => {
      await SAVING.devices.make(saving)
      await syncFile(join(saving.work, FILES.devices))
      saving.files.set(FILES.devices, await factsOf(join(saving.work, FILES.devices)))
    },
  },
  { name: 'disks', make: saveDisks },
  { name: 'rings', make: (saving) => saveRings(saving, { hasConsole: true }) },
  { name: 'manifest', make: publishSaved },
]

async function publishSaved(saving: Saving): Promise<void> {
  const { folder, instance } = saving
  await publish(folder, await manifestOf(saving, new Set()), {
    warn: (error) =>
      instance.context.log.error('folder of a saved machine not finished', {
        ...{ folder, error: messageOf(error) },
      }),
  })
}

export interface SavingParts {
  readonly folder: string
  readonly host: HostFacts
  readonly atStep: AtStep
}

/** Saves the machine, and ends the instance. When it fails before that, the machine goes on. */
export async function suspend(
  instance: MachineInstance,
  request: SuspendInstanceRequest,
  { folder, host, atStep }: SavingParts,
  caller: Pick<Caller, 'inStep'>,
): Promise<SavedMachine> {
  const { record, context } = instance
  const { qmp } = instance.machine()
  const wasRunning = record.current === State.RUNNING
  const hasAgent = !request.withoutAgent && hasAgentWay(instance)
  const kept = record.snapshots.find(({ memory }) => memory)
  if (kept !== undefined)
    throw new AgentError(
      'FAILED_PRECONDITION',
      `snapshot ${kept.name}: has memory, which stays with the instance, want it removed`,
    )
  refuseLease(instance)
  refuseUndecided(instance)
  if (request.folder !== '') refuseAway(instance)
  // What an earlier one could not let go on.
  if (!wasRunning) await goOn(qmp, { wasRunning, signal: instance.ending })
  await settleReplugs(instance)
  const vsock = await checkSuspend(instance, { wasRunning, hasAgent })
  if (vsock === undefined) await checkSavable(qmp, instance.ending)
  await checkFree(folder)
  const facts = { folder, hasAgent, host, id: randomUUID(), request, vsock, wasRunning }
  const saving = newSaving(instance, { ...facts, step: 'suspend' })
  const begun = performance.now()
  const text = `the machine is being saved as ${request.name}`
  const times = await save(saving, STEPS, { atStep, caller, text })
  const stoppedUs = microseconds(performance.now() - saving.stoppedAt)
  await atStep('export', 'end')
  caller.inStep('ending the machine that was saved')
  endCallers(instance)
  await instance
    .finishRemoval()
    .catch((error) => context.log.error('saved machine not removed', { error: messageOf(error) }))
  const saved = await describeSaved(folder, await readManifest(folder))
  context.log.info('machine saved', { folder, ...millisecondsOf(times) })
  return { ...saved, steps: times, stoppedUs, waitingUs: microseconds(performance.now() - begun) }
}
