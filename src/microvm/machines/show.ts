import { type Column, table } from '../../client/output/table.ts'
import { ageText, bytesText } from '../../client/output/text.ts'
import type { Instance } from '../../gen/microvm/instance/v1/instance.ts'
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
  const { columns = 0, isTTY } = context.stdio.stdout
  await print(
    context,
    table(columnsAt(Date.now()), instances, isTTY === true && columns > 0 ? columns : undefined),
  )
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
      text: ({ specification }) => `${specification?.board?.cpus ?? ''}`,
    },
    {
      title: 'MEMORY',
      right: true,
      drop: 3,
      text: ({ specification }) => bytesText((specification?.board?.memoryMib ?? 0n) * BigInt(MIB)),
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
  if (context.values.has('json')) await printJson(context, instanceJson(instance))
  else await print(context, `${JSON.stringify(instanceJson(instance), null, 2)}\n`)
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
