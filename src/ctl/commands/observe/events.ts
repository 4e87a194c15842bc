import { plainText } from '../../../client/output/text.ts'
import type { Event, Exit, NetworkSetting } from '../../../gen/microvm/agent/v1/introspection.ts'
import { introspectionCalls } from '../../clients.ts'
import type { Context } from '../../command.ts'
import { printAs } from '../../output/print.ts'

const WAIT_MS = 30_000

export async function run(context: Context): Promise<undefined> {
  const introspection = await introspectionCalls(context)
  const follows = context.values.flag('follow')
  let afterSequence = BigInt(context.values.number('after', 0, Number.MAX_SAFE_INTEGER) ?? 0)
  for (;;) {
    const timeoutMs = follows ? WAIT_MS : 0
    const { events, gap, lastSequence } = await introspection.getEvents({ afterSequence, timeoutMs })
    if (gap !== undefined) {
      const text = `… events ${gap.firstSequence} to ${gap.lastSequence} were missed\n`
      await printAs(context, { text, value: { gap } })
    }
    for (const event of events) await printAs(context, { text: `${eventLine(event)}\n`, value: event })
    const isOver = events.length === 0 && gap === undefined
    if (!follows && isOver) return undefined
    afterSequence = lastSequence
  }
}

export function eventLine(event: Event): string {
  const at = new Date(Number(event.atMs)).toISOString()
  return plainText(`${at}  ${event.sequence}  ${whatHappened(event)}`)
}

function whatHappened(event: Event): string {
  if (event.agentStarted) return `agent started, restarts ${event.agentStarted.restarts}`
  if (event.processStarted)
    return `${processName(event.processStarted)} started, pid ${event.processStarted.pid}`
  if (event.processExited) return `${processName(event.processExited)} ended: ${endText(event.processExited)}`
  if (event.outOfMemory) return `${event.outOfMemory.containerId} out of memory`
  if (event.deviceChanged) {
    const { action, subsystem, path } = event.deviceChanged
    return `device ${action}: ${subsystem} ${path}`
  }
  if (event.storageChanged) {
    const { action, driver, mountPoint } = event.storageChanged
    return `storage ${action}: ${driver} ${mountPoint}`
  }
  if (event.networkChanged) {
    const { omitted, settings } = event.networkChanged
    const more = omitted === 0 ? '' : ` and ${omitted} more`
    return `network: ${settings.map(settingText).join(', ')}${more}`
  }
  if (event.clockSet) return `clock moved by ${event.clockSet.stepMs} ms`
  if (event.clockBehind) return `clock stands behind by ${event.clockBehind.behindMs} ms`
  if (event.repairStep) {
    const { number, name, state, reason } = event.repairStep
    return `repair ${number}: ${name} ${state}${reason === '' ? '' : `: ${reason}`}`
  }
  if (event.ready) return `ready after repair ${event.ready.number}, randomness ${event.ready.randomness}`
  if (event.renamed) {
    const { sandboxId, containers } = event.renamed
    const names = containers.map(({ oldId, newId }) => `${oldId} is ${newId}`)
    const all = sandboxId === '' ? names : [`the sandbox is ${sandboxId}`, ...names]
    return `renamed: ${all.join(', ')}`
  }
  if (event.streamChanged) {
    const { stream, port, action, total } = event.streamChanged
    return `${stream} over port ${port} of ${processName(event.streamChanged)} ${action} at byte ${total}`
  }
  return 'an event that this version of agent-ctl does not know'
}

function settingText({ kind, source, subject, value }: NetworkSetting): string {
  return `${kind} ${subject} ${value} (${source})`
}

/** `CONTAINER`, or `CONTAINER/PROCESS` for an added process. */
export function processName({ containerId, execId }: Pick<Exit, 'containerId' | 'execId'>): string {
  return execId === '' || execId === containerId ? containerId : `${containerId}/${execId}`
}

export function endText({ oomKilled, signal, status }: Exit): string {
  const cause = oomKilled ? ', out of memory' : ''
  return signal === 0 ? `status ${status}${cause}` : `signal ${signal}${cause}`
}
