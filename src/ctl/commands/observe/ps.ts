import { type Process, Process_Role } from '../../../gen/microvm/agent/v1/introspection.ts'
import { introspectionCalls } from '../../clients.ts'
import type { Context } from '../../command.ts'
import { printRows } from '../../output/print.ts'
import type { Column } from '../../output/table.ts'
import { ageText, bytesText } from '../../output/text.ts'

const ROLES: Readonly<Record<number, string>> = {
  [Process_Role.INIT]: 'init',
  [Process_Role.EXEC]: 'exec',
  [Process_Role.OTHER]: 'other',
  [Process_Role.AGENT]: 'agent',
}

/** `agent-ctl ps [CONTAINER]`. */
export async function run(context: Context): Promise<undefined> {
  const containerId = context.values.argument('CONTAINER')
  const introspection = await introspectionCalls(context)
  const { processes } = await introspection.listProcesses({ containerId })
  const isShown = ({ role }: Process) => context.values.flag('all') || role !== Process_Role.AGENT
  const now = Date.now()
  await printRows(context, processColumns(now), processes.filter(isShown))
}

/** The columns of a table of processes. */
export function processColumns(now: number): readonly Column<Process>[] {
  return [
    { title: 'CONTAINER', text: ({ containerId }) => containerId },
    { title: 'PID', text: ({ pid }) => String(pid), right: true },
    { title: 'ROLE', text: ({ role }) => ROLES[role] ?? '', drop: 1 },
    { title: 'PROCESS', text: ({ execId }) => execId, drop: 3 },
    { title: 'STATE', text: stateText },
    // By the clock of this machine, from which the guest's may differ.
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

function stateText({ exitStatus, state }: Process): string {
  return exitStatus === undefined ? state : `ended ${exitStatus}`
}
