import type { Column } from '../../client/output/table.ts'
import { ageText, plainText } from '../../client/output/text.ts'
import {
  Backend,
  CloneInstanceResponse,
  ListSavedResponse,
  SavedMachine,
} from '../../gen/microvm/instance/v1/instance.ts'
import { UsageError } from '../command-line/usage-error.mjs'
import {
  argument,
  changeInstance,
  type MachineContext,
  messageJson,
  print,
  printJson,
  timeoutMs,
} from './command.ts'
import { inputOf, readMessageOf } from './read-message.ts'
import { milliseconds, printTable } from './show.ts'

/** The commands about machines as files. NAME is KEY's, and KEY is NAME's, unless they are given. */
export async function suspend(context: MachineContext): Promise<undefined> {
  const { calls } = await context.daemon()
  const { values } = context
  const key = argument(context, 'KEY')
  const name = argument(context, 'NAME') || key
  const request = {
    ...{ key, name, folder: values.get('folder') ?? '' },
    ...{ quiesce: values.has('quiesce'), withoutAgent: values.has('without-agent') },
  }
  const endWait = context.reporter.wait(`saving ${key}`)
  const saved = await calls.suspendInstance(request, { timeoutMs: timeoutMs(context) }).finally(endWait)
  if (values.has('json')) {
    await printJson(context, messageJson('SavedMachine', SavedMachine, saved))
    return
  }
  const times = `the guest stood still for ${milliseconds(saved.stoppedUs)}, its callers waited for ${milliseconds(saved.waitingUs)}`
  await print(
    context,
    `${plainText(`${key}: saved as ${name}${saved.folder && ` in ${saved.folder}`} (${times})`)}\n`,
  )
  context.reporter.progress('its memory holds all that the guest knew, keys too')
}

export async function resume(context: MachineContext): Promise<undefined> {
  const name = argument(context, 'NAME')
  const key = argument(context, 'KEY') || name
  const replaceComponents = await replacedBy(context)
  const saved = { name, folder: context.values.get('folder') ?? '', replaceComponents }
  await changeInstance(context, `resuming ${name}`, (calls) =>
    calls.ensureInstance({ properties: { key }, saved }, { timeoutMs: timeoutMs(context) }),
  )
}

export async function list(context: MachineContext): Promise<undefined> {
  const { calls } = await context.daemon()
  const answer = await calls.listSaved({}, { timeoutMs: timeoutMs(context) })
  if (context.values.has('json'))
    await printJson(context, messageJson('ListSavedResponse', ListSavedResponse, answer))
  else await printTable(context, columnsAt(Date.now()), answer.machines)
}

export async function remove(context: MachineContext): Promise<undefined> {
  const { calls } = await context.daemon()
  const name = argument(context, 'NAME')
  await calls.deleteSaved({ name }, { timeoutMs: timeoutMs(context) })
  if (context.values.has('json')) await printJson(context, { name })
  else await print(context, `${plainText(name)}: removed\n`)
}

/** Makes clones of a saved machine, or of one that goes on. */
export async function clone(context: MachineContext): Promise<undefined> {
  const { calls } = await context.daemon()
  const [of, name] = [argument(context, 'SAVED'), argument(context, 'KEY')]
  const count = countOf(context.values.get('count') ?? '1')
  const hostname = context.values.get('hostname') ?? ''
  const replaceComponents = await replacedBy(context)
  const endWait = context.reporter.wait(`cloning ${of}`)
  const identity = hostname === '' ? undefined : { hostname }
  const withoutAgent = context.values.has('without-agent')
  const from = context.values.has('running') ? { key: of } : { saved: of }
  const request = { ...from, name, count, identity, withoutAgent, replaceComponents }
  const answer = await calls.cloneInstance(request, { timeoutMs: timeoutMs(context) }).finally(endWait)
  if (context.values.has('json')) {
    await printJson(context, messageJson('CloneInstanceResponse', CloneInstanceResponse, answer))
    return
  }
  for (const { properties } of answer.instances) await print(context, `${plainText(properties?.key ?? '')}\n`)
}

/** The backends of `--replace`, by their keys. */
async function replacedBy(context: MachineContext): Promise<Record<string, Backend>> {
  const backends: Record<string, Backend> = {}
  for (const word of context.values.get('replace')?.split('\n') ?? []) {
    const [, key = '', path = ''] = /^([^=]+)=(.+)$/.exec(word) ?? []
    if (key === '') throw new UsageError(`--replace ${word}: give it as KEY=FILE`)
    if (Object.hasOwn(backends, key)) throw new UsageError(`--replace ${word}: ${key} is given twice`)
    backends[key] = await readMessageOf(await inputOf(context, path), 'Backend', Backend)
  }
  return backends
}

function countOf(text: string): number {
  if (/^[1-9]\d{0,3}$/.test(text)) return Number(text)
  throw new UsageError(`--count ${text}: want a number from 1 on`)
}

function columnsAt(nowMs: number): readonly Column<SavedMachine>[] {
  return [
    { title: 'NAME', text: ({ name }) => name },
    { title: 'WAS', text: ({ key }) => key },
    { title: 'AGE', text: ({ createdMs }) => ageText(Math.max(0, nowMs - Number(createdMs))) },
    { title: 'RESUMED AS', text: ({ resumedAs }) => resumedAs },
    { title: 'FOLDER', drop: 1, text: ({ folder }) => folder },
  ]
}
