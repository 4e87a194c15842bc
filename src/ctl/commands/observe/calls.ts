import type { Call } from '../../../gen/microvm/agent/v1/introspection.ts'
import { introspectionCalls } from '../../clients.ts'
import type { Context } from '../../command.ts'
import { printRows } from '../../output/print.ts'
import type { Column } from '../../output/table.ts'
import { ageText } from '../../output/text.ts'

const COLUMNS: readonly Column<Call>[] = [
  { title: 'CALL', text: ({ method }) => method.replace(/^.*[/]/, '') },
  { title: 'AGE', text: ({ ageMs }) => ageText(ageMs), right: true },
  { title: 'STEP', text: ({ step }) => step },
  { title: 'SINCE', text: ({ stepAgeMs }) => ageText(stepAgeMs), right: true, drop: 2 },
  { title: 'CONTAINER', text: ({ containerId }) => containerId, drop: 1 },
  { title: 'PROCESS', text: ({ execId }) => execId, drop: 3 },
  { title: 'FROM', text: ({ connection, framing }) => `${connection} (${framing})`, drop: 4 },
]

export async function run(context: Context): Promise<undefined> {
  const introspection = await introspectionCalls(context)
  const { calls } = await introspection.listCalls({})
  await printRows(context, COLUMNS, calls)
}
