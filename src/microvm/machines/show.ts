import { stringify } from 'yaml'
import { describedMessage } from '../../client/json/described-types.ts'
import { decodeJson } from '../../client/json/to-json.ts'
import { type Column, table } from '../../client/output/table.ts'
import { ageText, bytesText } from '../../client/output/text.ts'
import { HostCall, type Instance } from '../../gen/microvm/instance/v1/instance.ts'
import { UsageError } from '../command-line/usage-error.mjs'
import {
  argument,
  instanceJson,
  type MachineContext,
  print,
  printJson,
  stateWord,
  timeoutMs,
} from './command.ts'

export async function list(context: MachineContext): Promise<undefined> {
  const { calls } = await context.daemon()
  const { instances } = await calls.listInstances({}, { timeoutMs: timeoutMs(context) })
  if (context.values.has('json')) {
    for (const instance of instances) await printJson(context, instanceJson(instance))
    return
  }
  await printTable(context, columnsAt(Date.now()), instances)
}

export async function printTable<Row>(
  context: MachineContext,
  columns: readonly Column<Row>[],
  rows: readonly Row[],
): Promise<undefined> {
  const { columns: width = 0, isTTY } = context.stdio.stdout
  await print(context, table(columns, rows, isTTY === true && width > 0 ? width : undefined))
}

const MIB = 2 ** 20

function columnsAt(nowMs: number): readonly Column<Instance>[] {
  return [
    { title: 'KEY', text: ({ properties }) => properties?.key ?? '' },
    { title: 'STATE', text: ({ state }) => stateWord(state) },
    { title: 'AGE', text: ({ createdMs }) => ageText(Math.max(0, nowMs - Number(createdMs))) },
    {
      title: 'CPUS',
      right: true,
      drop: 2,
      text: ({ configurations, specification }) =>
        `${configurations?.cpus ?? specification?.board?.cpus ?? ''}`,
    },
    {
      title: 'MEMORY',
      right: true,
      drop: 3,
      text: ({ configurations, specification }) =>
        bytesText((configurations?.memoryMib ?? specification?.board?.memoryMib ?? 0n) * BigInt(MIB)),
    },
    { title: 'TENANT', drop: 4, text: ({ properties }) => properties?.tenant ?? '' },
    { title: 'REASON', drop: 1, text: ({ reason }) => reason },
  ]
}

export async function inspect(context: MachineContext): Promise<undefined> {
  const { calls } = await context.daemon()
  const instance = await calls.getInstance(
    { key: argument(context, 'KEY') },
    { timeoutMs: timeoutMs(context) },
  )
  const name = MACHINES.find((each) => context.values.has(each))
  if (name !== undefined) return await printMachine(context, instance, name)
  if (context.values.has('json')) await printJson(context, instanceJson(instance))
  else await print(context, `${JSON.stringify(instanceJson(instance), null, 2)}\n`)
}

/** Options that show one machine of an instance that was made of a document. */
const MACHINES = ['saved', 'desired', 'current'] as const

async function printMachine(
  context: MachineContext,
  { configurations, properties }: Instance,
  name: (typeof MACHINES)[number],
): Promise<undefined> {
  const key = properties?.key ?? ''
  if (configurations === undefined)
    throw new UsageError(`--${name}: instance ${key} was not made of a document`)
  const text = configurations[name]
  if (text === '') throw new UsageError(`--${name}: instance ${key} has no machine that runs, want --saved`)
  const machine: unknown = JSON.parse(text)
  if (context.values.has('json')) await printJson(context, machine)
  else await print(context, stringify(machine, { aliasDuplicateObjects: false }))
}

export async function keys(context: MachineContext): Promise<undefined> {
  const { calls } = await context.daemon()
  const { instances } = await calls.listInstances({}, { timeoutMs: timeoutMs(context) })
  // bash expands other words.
  const words = instances
    .map(({ properties }) => properties?.key ?? '')
    .filter((key) => /^[\w.-]+$/.test(key))
  await print(context, words.map((word) => `${word}\n`).join(''))
}

const CALL_COLUMNS: readonly Column<HostCall>[] = [
  { title: 'CALL', text: ({ id }) => `${id}` },
  { title: 'METHOD', text: ({ method }) => method.replace(/^.*[/]/, '') },
  { title: 'KEY', text: ({ key }) => key },
  { title: 'TENANT', drop: 1, text: ({ tenant }) => tenant },
  { title: 'AGE', text: ({ ageMs }) => ageText(ageMs) },
  { title: 'STEP', text: ({ step }) => step },
]

export async function calls(context: MachineContext): Promise<undefined> {
  const daemon = await context.daemon()
  const answer = await daemon.calls.listCalls({}, { timeoutMs: timeoutMs(context) })
  if (!context.values.has('json')) return await printTable(context, CALL_COLUMNS, answer.calls)
  const type = describedMessage('microvm.instance.v1.HostCall')
  for (const call of answer.calls) await printJson(context, decodeJson(type, HostCall.encode(call).finish()))
}

export async function metrics(context: MachineContext): Promise<undefined> {
  const daemon = await context.daemon()
  const { text } = await daemon.calls.getMetrics({}, { timeoutMs: timeoutMs(context) })
  await print(context, text)
}
