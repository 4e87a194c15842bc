import { agentCalls } from '../../clients.ts'
import type { Context } from '../../command.ts'
import { print, printJson } from '../../output/print.ts'

/** `agent-ctl metrics`. */
export async function run(context: Context): Promise<undefined> {
  const agent = await agentCalls(context)
  const { metrics } = await agent.getMetrics({})
  if (context.output === 'json') await printJson(context, { metrics })
  else await print(context, metrics)
}
