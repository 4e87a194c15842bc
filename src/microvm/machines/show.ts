import { stringify } from 'yaml'
import { describedMessage } from '../../client/json/described-types.ts'
import { decodeJson } from '../../client/json/to-json.ts'
import { type Column, table } from '../../client/output/table.ts'
import { ageText, bytesText, plainText } from '../../client/output/text.ts'
import {
  type Configurations,
  BackendStatus_Health as Health,
  HostCall,
  type Instance,
  Operation,
  type OperationStep,
  Stability,
} from '../../gen/microvm/instance/v1/instance.ts'
import { readMachine } from '../../host/machine/document/document.ts'
import type { Address, Machine } from '../../host/machine/machine.ts'
import { UsageError } from '../command-line/usage-error.mjs'
import {
  argument,
  instanceJson,
  type MachineContext,
  print,
  printJson,
  stateText,
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
  if (context.values.has('timeline')) return await printTimeline(context, instance)
  const name = MACHINES.find((each) => context.values.has(each))
  if (name !== undefined) return await printMachine(context, instance, name)
  const { configurations } = instance
  if (context.values.has('json')) await printJson(context, instanceJson(instance))
  else if (configurations !== undefined) await printSummary(context, instance, configurations)
  else await print(context, `${JSON.stringify(instanceJson(instance), null, 2)}\n`)
}

const STEP_COLUMNS: readonly Column<OperationStep>[] = [
  { title: 'START', right: true, text: ({ startUs }) => milliseconds(startUs) },
  { title: 'DURATION', right: true, text: ({ durationUs }) => milliseconds(durationUs) },
  { title: 'STEP', text: ({ guest, name }) => (guest ? `guest: ${name}` : name) },
  { title: 'STATE', text: ({ state }) => state },
]

async function printTimeline(context: MachineContext, instance: Instance): Promise<undefined> {
  const { operations, properties } = instance
  if (operations.length === 0 && !context.values.has('json'))
    await print(
      context,
      `${plainText(properties?.key ?? '')}: no suspend, resume, clone, snapshot or revert\n`,
    )
  for (const operation of operations) {
    if (context.values.has('json')) {
      const type = describedMessage('microvm.instance.v1.Operation')
      await printJson(context, decodeJson(type, Operation.encode(operation).finish()))
      continue
    }
    await printOperation(context, operation)
  }
}

/** The steps as a table, and how long the guest stood still. */
export async function printOperation(context: MachineContext, operation: Operation): Promise<void> {
  const { durationUs, failure, kind, startedMs, steps, stoppedUs, waitingUs } = operation
  const begun = new Date(Number(startedMs)).toISOString()
  const fault = failure === '' ? '' : `, failed: ${failure}`
  await print(context, `${plainText(`${kind} ${begun}: ${milliseconds(durationUs)}${fault}`)}\n`)
  await printTable(context, STEP_COLUMNS, steps)
  const times = `guest stopped ${milliseconds(stoppedUs)}, callers waiting ${milliseconds(waitingUs)}`
  await print(context, `${times}\n\n`)
}

export function milliseconds(us: bigint): string {
  return `${(Number(us) / 1000).toFixed(1)} ms`
}

/** Its machines are long texts. */
async function printSummary(
  context: MachineContext,
  instance: Instance,
  { cpus, current, memoryMib, saved, stability }: Configurations,
): Promise<undefined> {
  const machine = readMachine(JSON.parse(current || saved))
  const { holderPid, properties, qemuPid, reboots, runValues, warnings } = instance
  const labels = Object.entries(properties?.labels ?? {}).map(([name, value]) => `${name}=${value}`)
  const run = Object.entries(runValues).map(([name, value]) => `${name} ${value}`)
  const size = `${cpus} CPU${cpus === 1 ? '' : 's'} of ${machine.cpu.model}, ${bytesText(memoryMib * BigInt(MIB))}`
  const rows: readonly (readonly [name: string, text: string])[] = [
    ['state', stateText(instance)],
    ['age', ageText(Math.max(0, Date.now() - Number(instance.createdMs)))],
    ['tenant', properties?.tenant ?? ''],
    ['labels', labels.join(' ')],
    ['machine', `${machine.board.machine}, ${size}`],
    ['uuid', machine.uuid],
    ['stability', stability === Stability.LATEST ? 'latest' : 'fixed'],
    ['processes', qemuPid === 0 ? '' : `QEMU ${qemuPid}, holder ${holderPid}`],
    ['reboots', reboots === 0 ? '' : `${reboots}`],
    ['this run', run.join(', ')],
    ...warnings.map((text) => ['warning', text] as const),
  ]
  const lines = rows.flatMap(([name, text]) =>
    text === '' ? [] : [`${name.padEnd(12)}${plainText(text)}\n`],
  )
  await print(context, `${plainText(properties?.key ?? '')}\n${lines.join('')}\n`)
  await printTable(context, DEVICE_COLUMNS, deviceRows(instance, machine))
  const shown = current === '' ? '--saved' : '--saved, --desired or --current'
  await print(context, `\nWith ${shown}: the whole machine. With --json: all.\n`)
}

interface DeviceRow {
  readonly key: string
  readonly model: string
  readonly place: string
  readonly behind: string
  readonly state: string
}

const DEVICE_COLUMNS: readonly Column<DeviceRow>[] = [
  { title: 'DEVICE', text: ({ key }) => key },
  { title: 'MODEL', text: ({ model }) => model },
  { title: 'PLACE', drop: 2, text: ({ place }) => place },
  { title: 'BEHIND', drop: 1, text: ({ behind }) => behind },
  { title: 'STATE', text: ({ state }) => state },
]

/** Those that the board has anyway, and empty ports, say nothing. */
function deviceRows({ backends, devices }: Instance, machine: Machine): readonly DeviceRow[] {
  const own = Object.entries(machine.devices).filter(
    ([, { builtIn, kind }]) => !builtIn && kind !== 'root-port',
  )
  return own.map(([key, { address, backend = '', model, plugged }]) => {
    const { kind = '', name, path } = machine.backends[backend] ?? {}
    const { health = Health.UNUSED, lastError = '', sizeBytes = 0n } = backends[backend] ?? {}
    const { leavingMs } = devices[key] ?? {}
    const states = [
      ...(leavingMs === undefined ? [] : [`leaving for ${ageText(Date.now() - Number(leavingMs))}`]),
      ...(plugged ? ['plugged in'] : []),
      ...(health === Health.DEAD ? ['dead'] : []),
      ...(sizeBytes === 0n ? [] : [bytesText(sizeBytes)]),
      ...(lastError === '' ? [] : [lastError]),
    ]
    const behind = [kind, name ?? path ?? ''].join(' ').trim()
    return { key, model, place: placeText(address), behind, state: states.join(', ') }
  })
}

function placeText(address: Address | undefined): string {
  switch (address?.type) {
    case undefined:
      return ''
    case 'pci':
      return `${hex(address.bus)}:${hex(address.slot)}.${address.function}`
    case 'drive':
      return `${address.controller} ${address.bus}:${address.target}:${address.unit}`
    case 'port':
      return `${address.controller} ${address.port}`
    default:
      return address satisfies never
  }
}

function hex(number: number): string {
  return number.toString(16).padStart(2, '0')
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
