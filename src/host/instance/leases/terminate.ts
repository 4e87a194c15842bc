import { neverAborted } from '../../../base/abort.ts'
import { AgentError, messageOf } from '../../../base/errors.ts'
import { SIGKILL } from '../../../base/signals.ts'
import type { MachineInstance } from '../instance.ts'
import { QEMU } from '../machine/machine.ts'
import { isUndecided } from '../moving/undecided.ts'

/** Ends the machine at once: a controller says so, or its lease has ended. */
export function terminate(instance: MachineInstance, reason: string): void {
  const { holder, log } = instance.context
  const ended = instance.endAtOnce(reason, () => terminated(instance, reason), neverAborted)
  // Not after the changes before.
  holder?.kill(QEMU.child, SIGKILL).catch(() => {})
  ended.then(
    () =>
      decide(instance).catch((error) => {
        if (!isGone(error)) log.warn('not learnt who runs the machine', { error: messageOf(error) })
      }),
    (error) => {
      if (!isGone(error)) log.error('instance not ended', { reason, error: messageOf(error) })
    },
  )
}

/** A move may have removed the instance meanwhile. */
function isGone(error: unknown): boolean {
  return error instanceof AgentError && error.code === 'NOT_FOUND'
}

/** Asks the controllers who runs a machine that was handed over, until they say it. */
async function decide(instance: MachineInstance): Promise<void> {
  const { plugParts, recorded } = instance
  await instance.change(async () => {
    if (isUndecided(recorded.steps)) await plugParts.moves?.settle(instance)
  }, neverAborted)
}

/** Writes down who has ended the machine, and ends the rest of it. To be called in a change. */
export async function terminated(instance: MachineInstance, reason: string): Promise<void> {
  await instance.recorded.note({ set: { terminated: true }, kind: 'state', text: reason })
  await instance.tearDown(reason)
}
