import { AgentError, messageOf } from '../../base/errors.ts'
import type { DaemonClient } from '../../client/daemon/daemon-client.ts'
import type { Column } from '../../client/output/table.ts'
import { ageText, bytesText, plainText } from '../../client/output/text.ts'
import {
  type HostEntry,
  InstanceServiceDefinition,
  ListHostsResponse,
  MigrateInstanceRequest,
  MigrateInstanceResponse,
  State,
} from '../../gen/microvm/instance/v1/instance.ts'
import {
  argument,
  type MachineContext,
  messageJson,
  print,
  printJson,
  timeoutMs,
} from '../machines/command.ts'
import { milliseconds, printOperation, printTable } from '../machines/show.ts'

/** Some machines have not moved. */
const LEFT = 1

/** Moves a machine to another host. A signal cancels the move until the machine is handed over. */
export async function migrate(context: MachineContext): Promise<number | undefined> {
  const { values } = context
  const key = argument(context, 'KEY')
  const request = MigrateInstanceRequest.fromPartial({
    ...{ key, toHost: values.get('to') ?? '', dryRun: values.has('dry-run') },
    ...{ quiesce: values.has('quiesce'), withoutAgent: values.has('without-agent') },
  })
  const daemon = await context.daemon()
  const answer = await moved(context, daemon, request)
  const { forecast } = answer
  if (values.has('json')) {
    await printJson(context, messageJson('MigrateInstanceResponse', MigrateInstanceResponse, answer))
    return forecast !== undefined && forecast.obstacles.length > 0 ? LEFT : undefined
  }
  if (forecast === undefined) {
    await print(context, `${plainText(textOf(key, answer))}\n`)
    for (const operation of [answer.operation, answer.moved?.operation])
      if (operation !== undefined) await printOperation(context, operation)
    return undefined
  }
  const { diskBytes, expectedMs, host, memoryBytes, obstacles } = forecast
  for (const obstacle of obstacles) await print(context, `${plainText(obstacle)}\n`)
  if (obstacles.length > 0) return LEFT
  const copied = `${bytesText(memoryBytes)} of memory, ${bytesText(diskBytes)} of disks`
  await print(
    context,
    `${plainText(`${key}: would move to ${host}: ${copied}, in about ${ageText(expectedMs)}`)}\n`,
  )
  return undefined
}

export async function list(context: MachineContext): Promise<undefined> {
  const { calls } = await context.daemon()
  const answer = await calls.listHosts({}, { timeoutMs: timeoutMs(context) })
  if (context.values.has('json'))
    await printJson(context, messageJson('ListHostsResponse', ListHostsResponse, answer))
  else await printTable(context, COLUMNS, answer.hosts)
}

/** Has this host take no more machines, and moves those that it has. */
export async function drain(context: MachineContext): Promise<number | undefined> {
  const { values } = context
  const daemon = await context.daemon()
  const draining = !values.has('end')
  await daemon.calls.drainHost({ draining }, { timeoutMs: timeoutMs(context) })
  if (!draining) {
    await print(context, 'this host takes machines again\n')
    return undefined
  }
  const { instances } = await daemon.calls.listInstances({}, { timeoutMs: timeoutMs(context) })
  const live = instances.filter(({ state }) => state === State.RUNNING || state === State.PAUSED)
  let left = 0
  for (const { properties } of live) {
    const key = properties?.key ?? ''
    const request = MigrateInstanceRequest.fromPartial({ key, toHost: values.get('to') ?? '' })
    try {
      const answer = await moved(context, daemon, request)
      await print(context, `${plainText(textOf(key, answer))}\n`)
    } catch (error) {
      context.signal.throwIfAborted()
      if (!(error instanceof AgentError)) throw error
      left += 1
      context.reporter.failure(plainText(`${key}: stays: ${messageOf(error)}`), [])
    }
  }
  return left === 0 ? undefined : LEFT
}

/** The last answer of a move, whose steps are shown as they begin. */
async function moved(
  { reporter, signal }: MachineContext,
  daemon: Pick<DaemonClient, 'stream'>,
  request: MigrateInstanceRequest,
): Promise<MigrateInstanceResponse> {
  const { fullName, methods } = InstanceServiceDefinition
  const call = daemon.stream(fullName, methods.migrateInstance.name)
  const cancel = () => call.cancel()
  signal.addEventListener('abort', cancel, { once: true })
  let last: MigrateInstanceResponse | undefined
  let endWait = () => {}
  try {
    await call.send(MigrateInstanceRequest.encode(request).finish())
    call.end()
    for await (const answer of call.answers) {
      last = MigrateInstanceResponse.decode(answer)
      if (last.step === '') continue
      const text = plainText(`${request.key}: ${last.step}${copiedText(last)}`)
      endWait()
      // Only the begin and the end of what is copied stay.
      if (last.doneBytes < last.totalBytes) endWait = reporter.wait(text)
      else reporter.progress(text)
    }
  } catch (error) {
    signal.throwIfAborted()
    throw error
  } finally {
    endWait()
    signal.removeEventListener('abort', cancel)
  }
  if (last !== undefined) return last
  throw new AgentError('UNAVAILABLE', 'the daemon has told nothing of the move')
}

function copiedText({ doneBytes, totalBytes }: MigrateInstanceResponse): string {
  if (totalBytes === 0n) return ''
  return ` ${bytesText(doneBytes)} of ${bytesText(totalBytes)}`
}

function textOf(key: string, { moved: to }: MigrateInstanceResponse): string {
  const { stoppedUs = 0n, waitingUs = 0n } = to?.operation ?? {}
  const times = `guest stopped ${milliseconds(stoppedUs)}, callers waiting ${milliseconds(waitingUs)}`
  return `${key}: runs on ${to?.host ?? ''} (${times})`
}

const COLUMNS: readonly Column<HostEntry>[] = [
  { title: 'HOST', text: ({ id, own }) => `${id}${own ? ' (this)' : ''}` },
  { title: 'ENDPOINT', text: ({ endpoint }) => endpoint },
  { title: 'QEMU', text: ({ qemuVersion }) => qemuVersion },
  { title: 'FREE', text: ({ memoryMib }) => `${memoryMib} MiB` },
  { title: 'TAKES', text: ({ draining }) => (draining ? 'none' : 'machines') },
]
