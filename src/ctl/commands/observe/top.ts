import { setTimeout as delay } from 'node:timers/promises'
import { introspectionCalls } from '../../clients.ts'
import type { Context } from '../../command.ts'
import { printJson, printScreen } from '../../output/print.ts'
import { processColumns, type ShownProcess, shownProcesses } from './ps.ts'

const DEFAULT_SECONDS = 2

export async function run(context: Context): Promise<undefined> {
  const { io, output, signal, values } = context
  const seconds = values.number('seconds', 1, 3600) ?? DEFAULT_SECONDS
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
