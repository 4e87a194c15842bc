import { agentCalls } from '../../clients.ts'
import type { Context } from '../../command.ts'
import { printAs } from '../../output/print.ts'

export async function run(context: Context): Promise<undefined> {
  const agent = await agentCalls(context)
  const { metrics } = await agent.getMetrics({})
  await printAs(context, { text: metrics, value: { metrics } })
}
