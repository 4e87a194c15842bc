import type { GetStacksResponse } from '../../../gen/microvm/agent/v1/introspection.ts'
import { introspectionCalls } from '../../clients.ts'
import type { Context } from '../../command.ts'
import { printAs } from '../../output/print.ts'
import { plainText } from '../../output/text.ts'

export async function run(context: Context): Promise<undefined> {
  const introspection = await introspectionCalls(context)
  const stacks = await introspection.getStacks({})
  await printAs(context, { text: stacksText(stacks), value: stacks })
}

export function stacksText({ loopResources, threads }: GetStacksResponse): string {
  const of = threads.flatMap(({ kernelStack, name, pid, state, threadId }) => [
    plainText(`${pid}/${threadId} ${name}: ${state}`),
    ...kernelStack.map((frame) => plainText(`    ${frame}`)),
  ])
  const waits = loopResources.map(({ count, type }) => plainText(`    ${count} ${type}`))
  return `${[...of, 'the event loop waits for', ...waits].join('\n')}\n`
}
