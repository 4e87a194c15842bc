import { plainText } from '../../../client/output/text.ts'
import { lifecycleCalls } from '../../clients.ts'
import { type Context, EXIT } from '../../command.ts'
import { parseDuration } from '../../command-line/duration.ts'
import { printAs } from '../../output/print.ts'

export async function runQuiesce(context: Context): Promise<undefined> {
  const bound = context.values.text('for')
  const timeoutMs = bound === undefined ? 0 : parseDuration('--for', bound)
  const value = await (await lifecycleCalls(context)).quiesce({ timeoutMs })
  const lines = [
    ...value.containers.map((id) => `container ${id}`),
    ...value.fileSystems.map((mountPoint) => `file system ${mountPoint}`),
  ]
  await printAs(context, { text: lines.map((line) => `frozen: ${plainText(line)}\n`).join(''), value })
}

export async function runThaw(context: Context): Promise<number> {
  const value = await (await lifecycleCalls(context)).thaw({})
  const text = value.wasFrozen
    ? 'thawed: the pod was at rest until now\n'
    : 'the pod was not frozen any more: what was taken of it may not be at rest\n'
  await printAs(context, { text, value })
  return value.wasFrozen ? 0 : EXIT.failed
}
