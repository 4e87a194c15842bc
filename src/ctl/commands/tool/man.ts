import packageJson from '../../../../package.json' with { type: 'json' }
import type { Context } from '../../command.ts'
import { manPage } from '../../help/man-page.ts'
import { print } from '../../output/print.ts'

/** `agent-ctl man`. */
export async function run(context: Context): Promise<undefined> {
  await print(context, manPage(context.commands, packageJson.version))
}
