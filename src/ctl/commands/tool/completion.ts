import type { Context } from '../../command.ts'
import { completionFor, SHELLS } from '../../help/completion.ts'
import { METHODS } from '../../methods/method-names.ts'
import { print } from '../../output/print.ts'

/** `agent-ctl completion SHELL`. */
export async function run(context: Context): Promise<undefined> {
  const shell = SHELLS.find((name) => name === context.values.argument('SHELL')) ?? 'bash'
  const methods = METHODS.map(({ method }) => method)
  await print(context, completionFor(shell, context.commands, methods))
}
