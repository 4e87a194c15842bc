import { setTimeout as delay } from 'node:timers/promises'
import type { Column } from '../../../client/output/table.ts'
import { ageText, bytesText } from '../../../client/output/text.ts'
import { type Exit, type Process, Process_Role } from '../../../gen/microvm/agent/v1/introspection.ts'
import { type Introspection, introspectionCalls } from '../../clients.ts'
import { CommandFailure, type Context, EXIT } from '../../command.ts'
import { enumName } from '../../output/enums.ts'
import { printJson, printPretty, printRows, printScreen } from '../../output/print.ts'
import { endText, processName } from './events.ts'

export type ShownProcess = Omit<Process, 'role'> & { readonly role: string }

export async function runPs(context: Context): Promise<undefined> {
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

const TOP_SECONDS = 2

export async function runTop(context: Context): Promise<undefined> {
  const { io, output, signal, values } = context
  const seconds = values.number('seconds', 1, 3600) ?? TOP_SECONDS
  const containerId = values.argument('CONTAINER')
  const introspection = await introspectionCalls(context)
  const isTerminal = io.stdout.isTTY === true
  for (;;) {
    const { processes } = await shownProcesses(introspection, containerId)
    const rows = processes.filter(({ role }) => role !== 'AGENT').toSorted(byMemory)
    if (output === 'json') for (const row of rows) await printJson(context, row)
    else {
      const lines = isTerminal ? Math.max(1, (io.stdout.rows ?? rows.length + 2) - 2) : rows.length
      await printScreen(context, processColumns(Date.now()), rows.slice(0, lines))
    }
    if (!isTerminal) return
    await delay(seconds * 1000, undefined, { signal })
  }
}

function byMemory(one: ShownProcess, other: ShownProcess): number {
  return Number(other.residentBytes - one.residentBytes)
}

const EXIT_COLUMNS: readonly Column<Exit>[] = [
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

export async function runExits(context: Context): Promise<undefined> {
  const containerId = context.values.argument('CONTAINER')
  const introspection = await introspectionCalls(context)
  const { exits } = await introspection.listExits({ containerId })
  await printRows(context, EXIT_COLUMNS, exits)
}

export async function runInspect(context: Context): Promise<undefined> {
  const containerId = context.values.argument('CONTAINER')
  const introspection = await introspectionCalls(context)
  const show = context.output === 'json' ? printJson : printPretty
  if (containerId === '') {
    const sandbox = await introspection.getSandbox({})
    const { containers } = await introspection.listContainers({})
    await show(context, { sandbox, containers })
    return
  }
  const { containers } = await introspection.listContainers({ containerId })
  const [container] = containers
  if (container === undefined) throw new CommandFailure(EXIT.failed, `container ${containerId}: not found`)
  const { processes } = await shownProcesses(introspection, containerId)
  const { exits } = await introspection.listExits({ containerId })
  const { storages } = await introspection.listMounts({})
  const held = storages.filter(({ holders }) => holders.includes(containerId))
  await show(context, { container, processes, storages: held, exits })
}
