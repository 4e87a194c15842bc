import { ChangeStateRequest_Change as Change } from '../../gen/microvm/instance/v1/instance.ts'
import { argument, changeInstance, graceMs, type MachineContext, timeoutMs } from './command.ts'

/** The commands, with the change that each asks for and what is shown meanwhile. */
const CHANGES: Readonly<Record<string, readonly [change: Change, doing: string]>> = {
  start: [Change.RUN, 'starting'],
  pause: [Change.PAUSE, 'pausing'],
  reset: [Change.RESET, 'resetting'],
  stop: [Change.STOP, 'stopping'],
  kill: [Change.KILL, 'killing'],
}

export async function run(context: MachineContext): Promise<undefined> {
  const [change, doing] = CHANGES[context.name] ?? [Change.CHANGE_UNSPECIFIED, context.name]
  const [key, grace] = [argument(context, 'KEY'), graceMs(context)]
  await changeInstance(context, `${doing} ${key}`, (calls) =>
    calls.changeState({ key, change, graceMs: grace }, { timeoutMs: timeoutMs(context, grace) }),
  )
}
