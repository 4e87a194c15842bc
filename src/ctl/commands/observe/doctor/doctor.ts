import { messageOf } from '../../../../base/errors.ts'
import { plainText } from '../../../../client/output/text.ts'
import type { Event } from '../../../../gen/microvm/agent/v1/introspection.ts'
import { agentCalls, type Introspection, introspectionCalls } from '../../../clients.ts'
import { type Context, EXIT } from '../../../command.ts'
import { print, printJson, printPretty } from '../../../output/print.ts'
import { shownCapabilities, stacksText } from '../agent.ts'
import { eventLine } from '../events.ts'
import { networkRows, shownDevices } from '../guest.ts'
import { shownProcesses } from '../processes.ts'
import { type Findings, lacksIn, suspicionsIn } from './suspicions.ts'

const NEWEST_EVENTS = 100

type Report = Map<string, unknown>

export async function run(context: Context): Promise<number> {
  const { found, report } = await collect(context)
  const [suspicious, lacks] = [suspicionsIn(found), lacksIn(found)]
  if (context.output === 'json') {
    const { untold } = found
    await printJson(context, { suspicious, lacks, untold, report: Object.fromEntries(report) })
  } else {
    const first = suspicious.length === 0 ? ['nothing is suspicious'] : suspicious.map((line) => `! ${line}`)
    await print(context, [...first, ...lacks.map((line) => `- ${line}`), ''].join('\n'))
    // The report has thousands of lines, which would scroll the suspicions away.
    if (context.io.stdout.isTTY) await print(context, 'the whole report: agent-ctl doctor > FILE\n')
    else await printReport(context, found, report)
  }
  return suspicious.length === 0 ? 0 : EXIT.failed
}

/** A question without an answer does not stop the others. */
async function collect(context: Context): Promise<{ readonly found: Findings; readonly report: Report }> {
  const report: Report = new Map()
  const untold: Record<string, string> = {}
  const ask = async <T>(heading: string, question: () => Promise<T>): Promise<T | undefined> => {
    try {
      const answer = await question()
      report.set(heading, answer)
      return answer
    } catch (error) {
      context.signal.throwIfAborted()
      untold[heading] = messageOf(error)
      return undefined
    }
  }
  const agent = await agentCalls(context)
  const introspection = await introspectionCalls(context)
  await ask('version', () => introspection.getVersion({}))
  const sentMs = Date.now()
  const sandbox = await ask('sandbox', () => introspection.getSandbox({}))
  const clockAheadMs = sandbox && aheadMs(Number(sandbox.guestTimeMs), sentMs, Date.now())
  const calls = await ask('calls', () => introspection.listCalls({}))
  const found: Findings = {
    sandbox,
    clockAheadMs,
    calls: calls?.calls,
    failed: calls?.failed,
    containers: (await ask('containers', () => introspection.listContainers({})))?.containers,
    processes: (await ask('processes', () => shownProcesses(introspection)))?.processes,
    exits: (await ask('exits', () => introspection.listExits({})))?.exits,
    capabilities: (await ask('capabilities', () => shownCapabilities(introspection)))?.capabilities,
    devices: (await ask('devices', () => shownDevices(introspection)))?.devices,
    events: await ask('events', () => newestEvents(introspection)),
    network: await ask('network', () => introspection.getNetwork({})),
    stacks: await ask('stacks', () => introspection.getStacks({})),
    loop: await ask('event loop', () => introspection.getLoopHistogram({ durationMs: 500 })),
    metrics: (await ask('metrics', () => agent.getMetrics({})))?.metrics,
    untold,
  }
  await ask('mounts and storages', () => introspection.listMounts({}))
  return { found, report }
}

/** The least offset of the guest's clock, read between two times of this machine. Above 0, it is ahead. */
function aheadMs(guestMs: number, sentMs: number, receivedMs: number): number | undefined {
  // Older agents do not send their time.
  if (guestMs === 0) return undefined
  return guestMs < sentMs ? guestMs - sentMs : Math.max(0, guestMs - receivedMs)
}

/** Prints each answer as text where text reads better, else as JSON. */
async function printReport(context: Context, found: Findings, report: Report): Promise<void> {
  const { events, metrics, network, stacks } = found
  const rows = network && networkRows(network).map((row) => plainText(Object.values(row).join('  ')))
  const asText = new Map([
    ['events', events?.map(eventLine).join('\n')],
    ['network', rows?.join('\n')],
    ['stacks', stacks && stacksText(stacks).trimEnd()],
    ['metrics', metrics?.trimEnd()],
  ])
  for (const [heading, answer] of report) {
    await print(context, `\n## ${heading}\n`)
    const text = asText.get(heading)
    if (text === undefined) await printPretty(context, answer)
    else await print(context, `${text}\n`)
  }
}

async function newestEvents(introspection: Introspection): Promise<readonly Event[]> {
  const events: Event[] = []
  for (let afterSequence = 0n; ; ) {
    const answer = await introspection.getEvents({ afterSequence, timeoutMs: 0 })
    events.push(...answer.events)
    if (answer.events.length === 0 && answer.gap === undefined) return events.slice(-NEWEST_EVENTS)
    afterSequence = answer.lastSequence
  }
}
