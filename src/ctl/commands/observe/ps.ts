import { type Process, Process_Role } from '../../../gen/microvm/agent/v1/introspection.ts'
import { type Introspection, introspectionCalls } from '../../clients.ts'
import type { Context } from '../../command.ts'
import { enumName } from '../../output/enums.ts'
import { printRows } from '../../output/print.ts'
import type { Column } from '../../output/table.ts'
import { ageText, bytesText } from '../../output/text.ts'

export type ShownProcess = Omit<Process, 'role'> & { readonly role: string }

export async function run(context: Context): Promise<undefined> {
  const containerId = context.values.argument('CONTAINER')
  const introspection = await introspectionCalls(context)
  const { processes } = await shownProcesses(introspection, containerId)
  const isShown = ({ role }: ShownProcess) => context.values.flag('all') || role !== 'AGENT'
  const now = Date.now()
  await printRows(context, processColumns(now), processes.filter(isShown))
}

export async function shownProcesses(
  introspection: Pick<Introspection, 'listProcesses'>,
  containerId = '',
): Promise<{ readonly processes: readonly ShownProcess[]; readonly omitted: number }> {
  const { omitted, processes } = await introspection.listProcesses({ containerId })
  return {
    processes: processes.map((each) => ({ ...each, role: enumName(Process_Role, each.role) })),
    omitted,
  }
}

export function processColumns(now: number): readonly Column<ShownProcess>[] {
  return [
    { title: 'CONTAINER', text: ({ containerId }) => containerId },
    { title: 'PID', text: ({ pid }) => String(pid), right: true },
    { title: 'ROLE', text: ({ role }) => role.toLowerCase(), drop: 1 },
    { title: 'PROCESS', text: ({ execId }) => execId, drop: 3 },
    { title: 'STATE', text: stateText },
    // By this machine's clock, which may differ from the guest's.
    {
      title: 'AGE',
      text: ({ startedAtMs }) => (startedAtMs === 0n ? '' : ageText(Math.max(0, now - Number(startedAtMs)))),
      right: true,
      drop: 4,
    },
    { title: 'MEMORY', text: ({ residentBytes }) => bytesText(residentBytes), right: true, drop: 2 },
    { title: 'WAITS IN', text: ({ waitsIn }) => waitsIn, drop: 5 },
    { title: 'NAME', text: ({ name }) => name },
  ]
}

function stateText({ exitStatus, paused, state }: ShownProcess): string {
  if (exitStatus !== undefined) return `ended ${exitStatus}`
  return paused ? 'paused' : state
}
