import { setTimeout as delay } from 'node:timers/promises'
import type { Column } from '../../../client/output/table.ts'
import { bytesText } from '../../../client/output/text.ts'
import type { StatsContainerResponse } from '../../../gen/agent.ts'
import { agentCalls, introspectionCalls } from '../../clients.ts'
import { CommandFailure, type Context } from '../../command.ts'
import { printJson, printRows, printScreen } from '../../output/print.ts'

const DEFAULT_WATCH_SECONDS = 1
const HISTORY = 30

interface Row {
  readonly containerId: string
  readonly cpuNs: bigint
  /** Percent of one CPU since the previous row. */
  readonly cpuPercent: number | undefined
  readonly memoryBytes: bigint
  readonly memoryLimit: bigint
  readonly processes: bigint
  readonly readBytes: bigint
  readonly writtenBytes: bigint
  readonly history: readonly number[]
}

export async function run(context: Context): Promise<undefined> {
  const { output, signal, values } = context
  const seconds = values.flag('watch') ? Number(values.text('watch') ?? DEFAULT_WATCH_SECONDS) : undefined
  let before = new Map<string, { readonly row: Row; readonly at: number }>()
  for (;;) {
    const at = performance.now()
    const rows = (await read(context)).map((row) => withPercent(row, before.get(row.containerId), at))
    if (output === 'json') for (const { history: _, ...row } of rows) await printJson(context, row)
    else
      await (seconds === undefined ? printRows : printScreen)(context, columns(seconds !== undefined), rows)
    if (seconds === undefined) return
    before = new Map(rows.map((row) => [row.containerId, { row, at }]))
    await delay(seconds * 1000, undefined, { signal })
  }
}

async function read(context: Context): Promise<readonly Row[]> {
  const given = context.values.rest('CONTAINER')
  const agent = await agentCalls(context)
  const ids = given.length > 0 ? given : await running(context)
  const rows = await Promise.all(
    ids.map(async (containerId) => {
      try {
        return [rowOf(containerId, await agent.statsContainer({ containerId }))]
      } catch (error) {
        // The container was removed after it was listed.
        if (given.length === 0 && error instanceof CommandFailure) return []
        throw error
      }
    }),
  )
  return rows.flat()
}

async function running(context: Context): Promise<readonly string[]> {
  const { containers } = await (await introspectionCalls(context)).listContainers({})
  return containers.map(({ containerId }) => containerId)
}

function rowOf(containerId: string, { cgroupStats }: StatsContainerResponse): Row {
  const { blkioStats, cpuStats, memoryStats, pidsStats } = cgroupStats ?? {}
  const moved = (wanted: string) =>
    (blkioStats?.ioServiceBytesRecursive ?? [])
      .filter(({ op }) => op.toLowerCase() === wanted)
      .reduce((sum, { value }) => sum + value, 0n)
  return {
    containerId,
    cpuNs: cpuStats?.cpuUsage?.totalUsage ?? 0n,
    cpuPercent: undefined,
    memoryBytes: memoryStats?.usage?.usage ?? 0n,
    memoryLimit: memoryStats?.usage?.limit ?? 0n,
    processes: pidsStats?.current ?? 0n,
    readBytes: moved('read'),
    writtenBytes: moved('write'),
    history: [],
  }
}

function withPercent(
  row: Row,
  before: { readonly row: Row; readonly at: number } | undefined,
  at: number,
): Row {
  if (before === undefined) return row
  const cpuPercent = Math.max(0, Number(row.cpuNs - before.row.cpuNs) / 1e4 / (at - before.at))
  return { ...row, cpuPercent, history: [...before.row.history, cpuPercent].slice(-HISTORY) }
}

/** The kernel's value for no limit is larger than any memory. */
const NO_LIMIT = 1n << 60n

function columns(isWatched: boolean): readonly Column<Row>[] {
  const percent = ({ cpuPercent }: Row) => (cpuPercent === undefined ? '' : `${cpuPercent.toFixed(1)} %`)
  return [
    { title: 'CONTAINER', text: ({ containerId }) => containerId },
    ...(isWatched ? [{ title: 'CPU', text: percent, right: true }] : []),
    { title: 'CPU TIME', text: ({ cpuNs }) => `${(Number(cpuNs) / 1e9).toFixed(2)} s`, right: true, drop: 2 },
    { title: 'MEMORY', text: ({ memoryBytes }) => bytesText(memoryBytes), right: true },
    {
      title: 'LIMIT',
      text: ({ memoryLimit }) =>
        memoryLimit === 0n || memoryLimit > NO_LIMIT ? '-' : bytesText(memoryLimit),
      right: true,
      drop: 3,
    },
    { title: 'PIDS', text: ({ processes }) => String(processes), right: true, drop: 1 },
    { title: 'READ', text: ({ readBytes }) => bytesText(readBytes), right: true, drop: 5 },
    { title: 'WRITTEN', text: ({ writtenBytes }) => bytesText(writtenBytes), right: true, drop: 4 },
    ...(isWatched ? [{ title: 'CPU SINCE', text: ({ history }: Row) => sparkline(history), drop: 6 }] : []),
  ]
}

const BARS = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'] as const

/** A bar for each number, scaled to the largest. */
function sparkline(numbers: readonly number[]): string {
  const most = Math.max(0, ...numbers)
  return numbers
    .map((number) => BARS[most === 0 ? 0 : Math.round((Math.max(0, number) / most) * (BARS.length - 1))])
    .join('')
}
