import type { Exit } from '../../../gen/microvm/agent/v1/introspection.ts'
import { introspectionCalls } from '../../clients.ts'
import type { Context } from '../../command.ts'
import { printRows } from '../../output/print.ts'
import type { Column } from '../../output/table.ts'
import { ageText, bytesText } from '../../output/text.ts'
import { endText, processName } from './events.ts'

const COLUMNS: readonly Column<Exit>[] = [
  { title: 'PROCESS', text: processName },
  { title: 'END', text: endText },
  { title: 'PID', text: ({ pid }) => String(pid), right: true, drop: 4 },
  { title: 'AT', text: ({ endedAtMs }) => new Date(Number(endedAtMs)).toISOString(), drop: 2 },
  {
    title: 'RAN',
    text: ({ endedAtMs, startedAtMs }) => (startedAtMs === 0n ? '-' : ageText(endedAtMs - startedAtMs)),
    right: true,
    drop: 1,
  },
  {
    title: 'MEMORY',
    text: ({ resources }) => (resources === undefined ? '' : bytesText(resources.maxResidentKib * 1024n)),
    right: true,
    drop: 3,
  },
]

export async function run(context: Context): Promise<undefined> {
  const containerId = context.values.argument('CONTAINER')
  const introspection = await introspectionCalls(context)
  const { exits } = await introspection.listExits({ containerId })
  await printRows(context, COLUMNS, exits)
}
