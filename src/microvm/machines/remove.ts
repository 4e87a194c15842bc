import { plainText } from '../../client/output/text.ts'
import { argument, type MachineContext, print, printJson, timeoutMs } from './command.ts'

export async function run(context: MachineContext): Promise<undefined> {
  const { calls } = await context.daemon()
  const key = argument(context, 'KEY')
  const { snapshots } = await calls.listSnapshots({ key }, { timeoutMs: timeoutMs(context) })
  const endWait = context.reporter.wait(`removing ${key}`)
  await calls.remove({ key }, { timeoutMs: timeoutMs(context) }).finally(endWait)
  if (context.values.has('json')) await printJson(context, { key })
  else await print(context, `${key}: removed\n`)
  if (snapshots.length > 0)
    context.reporter.progress(
      `${plainText(key)}: its disks are as at their oldest snapshots; what was written since is gone`,
    )
}
