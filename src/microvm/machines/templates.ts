import { describedMessage } from '../../client/json/described-types.ts'
import { decodeJson } from '../../client/json/to-json.ts'
import type { Column } from '../../client/output/table.ts'
import { ageText, plainText } from '../../client/output/text.ts'
import { ListTemplatesResponse, type Template } from '../../gen/microvm/instance/v1/instance.ts'
import { argument, type MachineContext, print, printJson, timeoutMs } from './command.ts'
import { printTable } from './show.ts'

export async function list(context: MachineContext): Promise<undefined> {
  const { calls } = await context.daemon()
  const answer = await calls.listTemplates({}, { timeoutMs: timeoutMs(context) })
  if (!context.values.has('json')) return await printTable(context, columnsAt(Date.now()), answer.templates)
  const type = describedMessage('microvm.instance.v1.ListTemplatesResponse')
  await printJson(context, decodeJson(type, ListTemplatesResponse.encode(answer).finish()))
}

export async function remove(context: MachineContext): Promise<undefined> {
  const { calls } = await context.daemon()
  const name = argument(context, 'NAME')
  await calls.removeTemplate({ name }, { timeoutMs: timeoutMs(context) })
  if (context.values.has('json')) await printJson(context, { name })
  else await print(context, `${plainText(name)}: removed\n`)
}

function columnsAt(nowMs: number): readonly Column<Template>[] {
  return [
    { title: 'NAME', text: ({ name }) => name },
    { title: 'STATE', text: stateOf },
    { title: 'CLONES', text: ({ clones }) => `${clones}` },
    { title: 'AGE', text: ({ createdMs }) => ageText(Math.max(0, nowMs - Number(createdMs))) },
    { title: 'MIB', text: ({ sizeBytes }) => `${sizeBytes / 2n ** 20n}` },
    { title: 'MACHINE', text: machineOf },
    { title: 'FILES', drop: 2, text: filesOf },
    { title: 'COMMAND LINE', drop: 1, text: ({ specification }) => specification?.board?.commandLine ?? '' },
  ]
}

function stateOf({ failure, step }: Template): string {
  if (failure !== '') return `failed: ${failure}`
  return step === '' ? 'ready' : `making: ${step}`
}

function machineOf({ specification }: Template): string {
  const { cpus = 0, machine = '', memoryMib = 0n } = specification?.board ?? {}
  return `${machine}, ${memoryMib} MiB, ${cpus} CPU${cpus === 1 ? '' : 's'}`
}

function filesOf({ specification }: Template): string {
  const { kernel = '', initrd = '' } = specification?.board ?? {}
  const disks = Object.values(specification?.backends ?? {}).map(({ file }) => file?.path ?? '')
  return [kernel, initrd, ...disks].filter((path) => path !== '').join(' ')
}
