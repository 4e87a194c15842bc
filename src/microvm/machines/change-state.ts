import { ChangeStateRequest_Change as Change } from '../../gen/microvm/instance/v1/instance.ts'
import { argument, changeInstance, graceMs, type MachineContext, timeoutMs } from './command.ts'

/** The commands but `reset`, with the change that each asks for and what is shown meanwhile. */
const CHANGES: Readonly<Record<string, readonly [change: Change, doing: string]>> = {
  start: [Change.RUN, 'starting'],
  pause: [Change.PAUSE, 'pausing'],
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

/** The daemon answers once the machine boots anew. */
export async function reset(context: MachineContext): Promise<undefined> {
  const key = argument(context, 'KEY')
  const { outOfBand } = await context.daemon()
  await changeInstance(context, `resetting ${key}`, async (calls) => {
    const options = { timeoutMs: timeoutMs(context) }
    await outOfBand.reset({}, { ...options, metadata: { instance: key } })
    return await calls.getInstance({ key }, options)
  })
}
