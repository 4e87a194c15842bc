import { messageOf } from '../../../base/errors.ts'
import { truncate } from '../../../base/truncate.ts'
import type {
  Call,
  Event,
  Exit,
  FailedCall,
  GetLoopHistogramResponse,
  GetNetworkResponse,
  GetSandboxResponse,
  GetStacksResponse,
} from '../../../gen/microvm/agent/v1/introspection.ts'
import { agentCalls, type Introspection, introspectionCalls } from '../../clients.ts'
import { type Context, EXIT } from '../../command.ts'
import { print, printJson, printPretty } from '../../output/print.ts'
import { ageText, plainText } from '../../output/text.ts'
import { type ShownCapability, shownCapabilities } from './capabilities.ts'
import { type ShownDevice, shownDevices } from './devices.ts'
import { endText, eventLine, processName } from './events.ts'
import { networkRows } from './net.ts'
import { shownProcesses } from './ps.ts'
import { stacksText } from './stacks.ts'

/** What the agent has told, by the headings of the report. What it has not told is missing. */
export interface Findings {
  readonly sandbox: GetSandboxResponse | undefined
  readonly calls: readonly Call[] | undefined
  /** Calls that were answered with an error. */
  readonly failed: readonly FailedCall[] | undefined
  readonly exits: readonly Exit[] | undefined
  readonly capabilities: readonly ShownCapability[] | undefined
  readonly devices: readonly ShownDevice[] | undefined
  readonly events: readonly Event[] | undefined
  readonly loop: GetLoopHistogramResponse | undefined
  readonly metrics: string | undefined
  readonly network: GetNetworkResponse | undefined
  readonly stacks: GetStacksResponse | undefined
  /** Why the agent has not told something, by its heading. */
  readonly untold: Readonly<Record<string, string>>
}

/** A call that works for so long hangs. */
const HANGING_MS = 5_000

/** Calls whose step begins so wait for as long as their callers like. */
const PATIENT_STEPS: readonly string[] = ['exit', 'output', 'input', 'event']

/** An event loop that is later than this for one of a hundred timers answers slowly. */
const LATE_US = 250_000

/** The least share of the memory that should be available. */
const LEAST_AVAILABLE = 0.05

/** How many of the newest exits are looked at, and how many events are shown. */
const NEWEST = 100

/** Answers by their headings in the report. */
type Report = Map<string, unknown>

/** `agent-ctl doctor`. */
export async function run(context: Context): Promise<number> {
  const { found, report } = await collect(context)
  const [suspicious, lacks] = [suspicionsIn(found), lacksIn(found)]
  if (context.output === 'json') {
    const { untold } = found
    await printJson(context, { suspicious, lacks, untold, report: Object.fromEntries(report) })
  } else {
    const first = suspicious.length === 0 ? ['nothing is suspicious'] : suspicious.map((line) => `! ${line}`)
    await print(context, [...first, ...lacks.map((line) => `- ${line}`), ''].join('\n'))
    await printReport(context, found, report)
  }
  return suspicious.length === 0 ? 0 : EXIT.failed
}

/** Asks everything. A question without an answer does not stop the others. */
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
  const sandbox = await ask('sandbox', () => introspection.getSandbox({}))
  const calls = await ask('calls', () => introspection.listCalls({}))
  const found: Findings = {
    sandbox,
    calls: calls?.calls,
    failed: calls?.failed,
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
  await ask('containers', () => introspection.listContainers({}))
  await ask('processes', () => shownProcesses(introspection))
  await ask('mounts and storages', () => introspection.listMounts({}))
  return { found, report }
}

/** Prints each answer below its heading, as JSON unless it reads better as text. */
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

/** The newest events. The first question tells the number of the last. */
async function newestEvents(introspection: Introspection): Promise<readonly Event[]> {
  const events: Event[] = []
  for (let afterSequence = 0n; ; ) {
    const answer = await introspection.getEvents({ afterSequence, timeoutMs: 0 })
    events.push(...answer.events)
    if (answer.events.length === 0 && answer.gap === undefined) return events.slice(-NEWEST)
    afterSequence = answer.lastSequence
  }
}

/** What is suspicious, the gravest first, each in one line that names the cause as far as it is known. */
export function suspicionsIn(found: Findings): readonly string[] {
  return [
    ...untoldIn(found),
    ...restartsIn(found),
    ...hangingIn(found),
    ...missingIn(found),
    ...failuresIn(found),
    ...slownessIn(found),
    ...endsIn(found),
    ...idleDisksIn(found),
  ].map(plainText)
}

/** One line for each reason: a guest that did not boot has the same one for all. */
function untoldIn({ untold }: Findings): string[] {
  const headings = Map.groupBy(Object.entries(untold), ([, reason]) => reason.replace(/^\w+: /, ''))
  return [...headings].map(
    ([reason, of]) => `not told: ${of.map(([heading]) => heading).join(', ')}: ${reason}`,
  )
}

function restartsIn({ sandbox }: Findings): string[] {
  if (sandbox === undefined || sandbox.agentRestarts === 0) return []
  const times = sandbox.agentRestarts === 1 ? 'once' : `${sandbox.agentRestarts} times`
  const since = ageText(sandbox.agentUptimeMs)
  return [`the agent died and was restarted ${times}, the last time ${since} ago: its log tells why`]
}

function hangingIn({ calls = [] }: Findings): string[] {
  return calls
    .filter(({ ageMs, method, step }) => {
      const isOwn = method.startsWith('microvm.agent.v1.Introspection/')
      return !isOwn && ageMs >= HANGING_MS && !PATIENT_STEPS.includes(step.split(' ', 1)[0] ?? '')
    })
    .map(({ ageMs, containerId, execId, method, step, stepAgeMs }) => {
      const of = containerId === '' ? '' : ` of ${processName({ containerId, execId })}`
      const call = method.replace(/^.*[/]/, '')
      return `${call}${of} hangs for ${ageText(ageMs)}, for ${ageText(stepAgeMs)} of it in step ${step || 'none'}`
    })
}

/** What the guest does not have, although it is asked for or every pod needs it. */
function missingIn({ capabilities = [] }: Findings): string[] {
  return capabilities.flatMap(({ enabled, name, reason }) => {
    if (enabled) return []
    if (name === 'limits of containers')
      return [`limits of containers are refused: ${ADD_CONTROLLERS} (${reason})`]
    // The other reason is that the console is off.
    const hasNoShell = name === 'debug console' && reason.startsWith('no shell: ')
    return hasNoShell ? [`the debug console has ${reason}`] : []
  })
}

const ADD_CONTROLLERS =
  "remove systemd.unified_cgroup_hierarchy=0, cgroup_no_v1= or cgroup_disable= from the kernel's command line"

/** Why calls fail, by their errors, in plain words and with what to do: docs/troubleshooting.md has the same. */
const CAUSES: readonly (readonly [error: RegExp, cause: string])[] = [
  [
    /waiting for uevent/,
    'a storage or device never came: compare its path with the devices below; was it plugged in, has it a driver?',
  ],
  [
    /no listener: /,
    'the host does not listen on a port: look whether the process at its end still runs, and listens there',
  ],
  [
    /running hook|\(hook #/,
    "a hook failed: run its program by itself in the guest; what it wrote is in the agent's log",
  ],
  [
    /the guest kernel has no /,
    'the kernel lacks an option: take a kernel with it, built in or as a module that modprobe finds',
  ],
  [/setting cgroup config/, `a limit has no controller: ${ADD_CONTROLLERS}`],
]

/** Failures that are older are left to the report, as the agent forgets exits. */
const RECENT_MS = 3_600_000

/** The characters of an error in one of the first lines. The report has all of it. */
const LONGEST_ERROR = 300

/** The newest first. What callers do wrong, and deadlines that pass, are not suspicious unless the cause is known. */
function failuresIn({ failed = [] }: Findings): string[] {
  return failed.toReversed().flatMap(({ ageMs, callerFault, code, containerId, error, execId, method }) => {
    const cause = CAUSES.find(([pattern]) => pattern.test(error))?.[1]
    const isSuspicious = cause !== undefined || (code === 'INTERNAL' && !callerFault)
    if (ageMs > RECENT_MS || !isSuspicious) return []
    const of = containerId === '' ? '' : ` of ${processName({ containerId, execId })}`
    const call = `${method.replace(/^.*[/]/, '')}${of} failed ${ageText(ageMs)} ago`
    const text = truncate(error, LONGEST_ERROR)
    return [cause === undefined ? `${call}: ${text}` : `${cause} (${call}: ${text})`]
  })
}

function slownessIn({ loop, metrics = '' }: Findings): string[] {
  const lines: string[] = []
  if (loop !== undefined && Number(loop.p99Us) > LATE_US) {
    const busy = Math.round(loop.utilizationPercent)
    lines.push(
      `the agent's event loop is late by ${ageText(loop.p99Us / 1000n)} and busy for ${busy} % of the time`,
    )
  }
  const memory = (item: string) =>
    Number(new RegExp(`^kata_guest_meminfo\\{item="${item}"\\} (\\S+)`, 'm').exec(metrics)?.[1])
  const share = memory('mem_available') / memory('mem_total')
  if (share < LEAST_AVAILABLE) {
    lines.push(`only ${(share * 100).toFixed(1)} % of the guest's memory is available`)
  }
  return lines
}

function endsIn({ exits = [] }: Findings): string[] {
  const bad = exits
    .slice(-NEWEST)
    .filter(({ oomKilled, signal }) => oomKilled || UNASKED_SIGNALS.includes(signal))
  return bad.map((exit) => {
    const cause = exit.oomKilled ? 'was killed for want of memory' : 'crashed'
    return `${processName(exit)} ${cause}: ${endText(exit)}, ${new Date(Number(exit.endedAtMs)).toISOString()}`
  })
}

/** SIGILL, SIGTRAP, SIGABRT, SIGBUS, SIGFPE, SIGSEGV, SIGSYS: a process that ends by one has crashed. */
const UNASKED_SIGNALS: readonly number[] = [4, 5, 6, 7, 8, 11, 31]

/** Loop devices and their like have no driver. */
function idleDisksIn({ devices = [] }: Findings): string[] {
  const idle = devices.filter(({ driver, kind, path }) => {
    return driver === '' && kind === 'BLOCK' && !path.includes('/virtual/')
  })
  return idle.map(({ name }) => `disk ${name} has no driver`)
}

/** What the kernel and the guest do not have. Most guests lack something that their pods do not need. */
export function lacksIn({ capabilities = [] }: Findings): readonly string[] {
  const holders = new Map([
    ['KERNEL', 'the kernel'],
    ['TOOL', 'the guest'],
  ])
  return capabilities.flatMap(({ enabled, kind, name, reason }) => {
    const holder = holders.get(kind)
    return enabled || holder === undefined ? [] : [plainText(`${holder} lacks ${name}: ${reason}`)]
  })
}
