import type { Column } from '../../client/output/table.ts'
import { ageText, bytesText, plainText } from '../../client/output/text.ts'
import {
  Snapshot_Consistency as Consistency,
  ListSnapshotsResponse,
  Snapshot,
} from '../../gen/microvm/instance/v1/instance.ts'
import {
  argument,
  changeInstance,
  type MachineContext,
  messageJson,
  print,
  printJson,
  timeoutMs,
} from './command.ts'
import { printTable } from './show.ts'

export async function take(context: MachineContext): Promise<undefined> {
  const { calls } = await context.daemon()
  const [key, name] = [argument(context, 'KEY'), argument(context, 'SNAPSHOT')]
  const disks = (context.values.get('disks') ?? '').split(',').filter((disk) => disk !== '')
  const { values } = context
  const how = {
    quiesce: values.has('quiesce'),
    memory: values.has('memory'),
    withoutAgent: values.has('without-agent'),
  }
  const endWait = context.reporter.wait(`taking snapshot ${name}`)
  const answer = await calls
    .snapshot({ key, name, disks, ...how }, { timeoutMs: timeoutMs(context) })
    .finally(endWait)
  const snapshot = answer.snapshot ?? Snapshot.create()
  if (context.values.has('json')) {
    await printJson(context, messageJson('Snapshot', Snapshot, snapshot))
    return
  }
  const kept = [...(snapshot.memory ? ['memory'] : []), ...snapshot.disks.map(({ device }) => device)].join(
    ', ',
  )
  const still = snapshot.stillUs === 0n ? '' : `; the guest stood still for ${stillText(snapshot)}`
  const waited = snapshot.memory ? `, its callers waited for ${milliseconds(snapshot.waitingUs)}` : ''
  await print(
    context,
    `${plainText(`${key}: ${name}: ${kept} (consistent: ${consistent(snapshot)}${still}${waited})`)}\n`,
  )
}

export async function list(context: MachineContext): Promise<undefined> {
  const { calls } = await context.daemon()
  const key = argument(context, 'KEY')
  const answer = await calls.listSnapshots({ key }, { timeoutMs: timeoutMs(context) })
  if (context.values.has('json'))
    await printJson(context, messageJson('ListSnapshotsResponse', ListSnapshotsResponse, answer))
  else await printTable(context, columnsAt(Date.now()), answer.snapshots)
}

export async function revert(context: MachineContext): Promise<undefined> {
  const [key, name] = [argument(context, 'KEY'), argument(context, 'SNAPSHOT')]
  await changeInstance(context, `going back to ${name}`, (calls) =>
    calls.revert({ key, name }, { timeoutMs: timeoutMs(context) }),
  )
}

/** Of `merge`, which has no name of a snapshot: all of them. */
export async function remove(context: MachineContext): Promise<undefined> {
  const { calls } = await context.daemon()
  const [key, name] = [argument(context, 'KEY'), argument(context, 'SNAPSHOT')]
  const endWait = context.reporter.wait(`merging the disks of ${key}`)
  const { stillUs } = await calls
    .removeSnapshot({ key, name, all: name === '' }, { timeoutMs: timeoutMs(context) })
    .finally(endWait)
  if (context.values.has('json')) {
    await printJson(context, { key, name, still_us: `${stillUs}` })
    return
  }
  const still = stillUs === 0n ? '' : ` (the guest stood still for ${stillText({ stillUs })})`
  await print(context, `${key}: ${name === '' ? 'all snapshots' : name}: removed${still}\n`)
}

function columnsAt(nowMs: number): readonly Column<Snapshot>[] {
  return [
    { title: 'NAME', text: ({ name }) => name },
    { title: 'AGE', text: ({ createdMs }) => ageText(Math.max(0, nowMs - Number(createdMs))) },
    { title: 'CONSISTENT', text: consistent },
    { title: 'MEMORY', right: true, drop: 3, text: memoryText },
    { title: 'STILL', right: true, drop: 2, text: stillText },
    { title: 'DISKS', drop: 1, text: ({ disks }) => disks.map(({ device }) => device).join(' ') },
  ]
}

function consistent({ consistency }: Snapshot): string {
  if (consistency === Consistency.FILE_SYSTEM) return 'file system'
  return consistency === Consistency.CRASH ? 'crash' : 'stopped'
}

function stillText({ stillUs }: Pick<Snapshot, 'stillUs'>): string {
  return milliseconds(stillUs)
}

function memoryText({ memory, memoryBytes }: Snapshot): string {
  return memory ? bytesText(memoryBytes) : ''
}

function milliseconds(us: bigint): string {
  return `${(Number(us) / 1000).toFixed(1)} ms`
}
