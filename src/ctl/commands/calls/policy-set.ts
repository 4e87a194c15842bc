import { agentCalls } from '../../clients.ts'
import { type Context, UsageError } from '../../command.ts'
import { readInput } from '../../methods/read-input.ts'

export async function run(context: Context): Promise<undefined> {
  const path = context.values.argument('FILE')
  const policy = readInput(path, path).toString()
  if (policy.trim() === '') throw new UsageError(`${path}: empty, want a policy in Rego`)
  const agent = await agentCalls(context)
  await agent.setPolicy({ policy })
}
