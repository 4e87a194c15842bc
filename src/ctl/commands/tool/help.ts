import { didYouMean } from '../../../base/suggest.mjs'
import { type Command, type Context, UsageError } from '../../command.ts'
import { commandHelp, toolHelp } from '../../help/help-text.ts'
import { print } from '../../output/print.ts'

export async function run(context: Context): Promise<undefined> {
  const words = context.values.rest('COMMAND')
  if (words.length === 0) return await showHelp(context, undefined, [])
  const command =
    context.commands.find(({ name }) => name === words.join(' ')) ??
    context.commands.find(({ name }) => name === words[0])
  if (command !== undefined) return await showHelp(context, command, words.slice(1))
  const { methodNamed, METHODS } = await import('../../methods/method-names.ts')
  const call = context.commands.find(({ name }) => name === 'call')
  if (methodNamed(words[0] ?? '') !== undefined) return await showHelp(context, call, words)
  const known = [...context.commands.map(({ name }) => name), ...METHODS.map(({ method }) => method)]
  const hint = didYouMean(words.join(' '), known, 'see agent-ctl --help')
  throw new UsageError(`unknown command "${words.join(' ')}"${hint}`)
}

/** Shows the help of the tool, of a command, or of the call that `words` begin with. */
export async function showHelp(
  context: Pick<Context, 'io' | 'commands'>,
  command: Command | undefined,
  words: readonly string[],
): Promise<undefined> {
  const [method] = words
  if (command?.name === 'call' && method !== undefined) {
    const [{ describedMethod }, { describeMethod }] = await Promise.all([
      import('../../methods/schema.ts'),
      import('../../methods/describe.ts'),
    ])
    await print(context, describeMethod(describedMethod(method)))
    return
  }
  await print(context, command === undefined ? toolHelp(context.commands) : commandHelp(command))
}
