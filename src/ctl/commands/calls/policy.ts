import { messageOf } from '../../../base/errors.ts'
import { plainText } from '../../../client/output/text.ts'
import { checkPolicy } from '../../../client/policy/check-policy.ts'
import { findPolicyEngines } from '../../../client/policy/policy-engines.ts'
import { agentCalls } from '../../clients.ts'
import { CommandFailure, type Context, EXIT, UsageError } from '../../command.ts'
import { readInput } from '../../methods/read-input.ts'
import { printAs } from '../../output/print.ts'

export async function runCheck(context: Context): Promise<number> {
  const { values } = context
  const file = values.argument('FILE')
  const bytes = readInput(file, file)
  const { errors, warnings } = await checkPolicy(bytes, enginesIn(values.text('engine')))
  const lines = [
    ...errors.map(({ column, line, message }) => {
      const place = line === undefined ? '' : `:${line}:${column}`
      return `${file}${place}: ${plainText(message)}`
    }),
    ...warnings.map((warning) => `${file}: warning: ${warning}`),
    ...(errors.length === 0 ? [`${file}: no errors`] : []),
  ]
  const text = lines.map((line) => `${line}\n`).join('')
  await printAs(context, { text, value: { file, errors, warnings } })
  return errors.length === 0 ? 0 : EXIT.failed
}

function enginesIn(folder: string | undefined): ReturnType<typeof findPolicyEngines> {
  try {
    return findPolicyEngines(folder)
  } catch (error) {
    throw new CommandFailure(EXIT.cannotRun, `policy check: ${messageOf(error)}`, { cause: error })
  }
}

export async function runSet(context: Context): Promise<undefined> {
  const path = context.values.argument('FILE')
  const policy = readInput(path, path).toString()
  if (policy.trim() === '') throw new UsageError(`${path}: empty, want a policy in Rego`)
  const agent = await agentCalls(context)
  await agent.setPolicy({ policy })
}
