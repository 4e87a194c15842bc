import type { Context } from '../../command.ts'
import { callMethod } from '../../methods/call-method.ts'
import { encodeWords } from '../../methods/request-words.ts'
import { describedMethod } from '../../methods/schema.ts'
import { printJson, printPretty } from '../../output/print.ts'

export async function run(context: Context): Promise<undefined> {
  const { io, output, signal, timeoutMs, values } = context
  const method = describedMethod(values.argument('METHOD'))
  const payload = await encodeWords(method.input, values.rest('REQUEST'), io.stdin)
  const answer = await callMethod(await context.session(), method, payload, { signal, timeoutMs })
  await (output === 'json' ? printJson : printPretty)(context, answer)
}
