import type { Context } from '../../command.ts'
import { METHODS } from '../../methods/method-names.ts'
import { print, printRows } from '../../output/print.ts'

export async function run(context: Context): Promise<undefined> {
  const name = context.values.argument('METHOD')
  if (name === '') {
    const columns = [
      { title: 'CALL', text: ({ method }: (typeof METHODS)[number]) => method },
      { title: 'SERVICE', text: ({ service }: (typeof METHODS)[number]) => service, drop: 1 },
    ]
    await printRows(context, columns, METHODS)
    return
  }
  const [{ describedMethod }, { describeMethod }] = await Promise.all([
    import('../../methods/schema.ts'),
    import('../../methods/describe.ts'),
  ])
  await print(context, describeMethod(describedMethod(name)))
}
