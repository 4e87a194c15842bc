import { truncate } from '../../../../base/truncate.ts'
import { ageText, plainText } from '../../../../client/output/text.ts'
import type {
  Call,
  Container,
  Event,
  Exit,
  FailedCall,
  GetLoopHistogramResponse,
  GetNetworkResponse,
  GetSandboxResponse,
  GetStacksResponse,
} from '../../../../gen/microvm/agent/v1/introspection.ts'
import type { ShownCapability } from '../agent.ts'
import { endText, processName } from '../events.ts'
import type { ShownDevice } from '../guest.ts'
import type { ShownProcess } from '../processes.ts'

/** The agent's answers; undefined for a question without an answer. */
export interface Findings {
  readonly sandbox: GetSandboxResponse | undefined
  readonly calls: readonly Call[] | undefined
  readonly failed: readonly FailedCall[] | undefined
  readonly containers: readonly Container[] | undefined
  readonly processes: readonly ShownProcess[] | undefined
  readonly exits: readonly Exit[] | undefined
  readonly capabilities: readonly ShownCapability[] | undefined
  readonly devices: readonly ShownDevice[] | undefined
  readonly events: readonly Event[] | undefined
  readonly loop: GetLoopHistogramResponse | undefined
  readonly metrics: string | undefined
  readonly network: GetNetworkResponse | undefined
  readonly stacks: GetStacksResponse | undefined
  /** Milliseconds by which the guest's clock is ahead of this machine's. */
  readonly clockAheadMs: number | undefined
  /** The errors of the questions without an answer, by heading. */
  readonly untold: Readonly<Record<string, string>>
}

const HANGING_MS = 5_000

/** The steps in which a call waits as long as its caller wants. */
const PATIENT_STEPS: readonly string[] = ['exit', 'output', 'input', 'event']

/** An event loop with a later 99th percentile answers slowly. */
const LATE_US = 250_000

const LEAST_AVAILABLE = 0.05

const UNREAD_MS = 10_000

/** A larger difference makes certificates invalid and time stamps wrong. */
const CLOCK_MS = 5_000

const NEWEST_EXITS = 100

/** One line for each suspicion, the gravest first. */
export function suspicionsIn(found: Findings): readonly string[] {
  return [
    ...untoldIn(found),
    ...restartsIn(found),
    ...hangingIn(found),
    ...missingIn(found),
    ...failuresIn(found),
    ...unreadIn(found),
    ...frozenIn(found),
    ...pausedIn(found),
    ...clockIn(found),
    ...slownessIn(found),
    ...endsIn(found),
    ...idleDisksIn(found),
  ].map(plainText)
}

/** One line for each reason, because a guest that did not boot gives the same reason for all. */
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

/** What the guest lacks although it is configured or every pod needs it. */
function missingIn({ capabilities = [] }: Findings): string[] {
  return capabilities.flatMap(({ enabled, name, reason }) => {
    if (enabled) return []
    if (name === 'limits of containers')
      return [`limits of containers are refused: ${ADD_CONTROLLERS} (${reason})`]
    if (name === 'clock')
      return [`the guest's clock is ${reason}: agent-ctl resumed repairs a guest that was restored`]
    // With any other reason the console is switched off.
    const hasNoShell = name === 'debug console' && reason.startsWith('no shell: ')
    return hasNoShell ? [`the debug console has ${reason}`] : []
  })
}

const ADD_CONTROLLERS =
  "remove systemd.unified_cgroup_hierarchy=0, cgroup_no_v1= or cgroup_disable= from the kernel's command line"

/** The causes of failed calls by their errors, with a remedy; docs/debug.md has the same. */
const CAUSES: readonly (readonly [error: RegExp, cause: string])[] = [
  [
    /waiting for uevent/,
    'a storage or device never came: compare its path with agent-ctl devices; was it plugged in, has it a driver?',
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

/** Older failures are only in the report; the agent forgets exits after an hour, too. */
const RECENT_MS = 3_600_000

/** The report has the whole error. */
const LONGEST_ERROR = 300

/** The newest first. Callers' faults and passed deadlines are suspicious only with a known cause. */
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

/** Processes that cannot write, because no call reads their earlier output. */
function unreadIn({ processes = [] }: Findings): string[] {
  return processes.flatMap(({ containerId, execId, unreadMs }) => {
    const waiting = processes.filter(
      (each) => each.containerId === containerId && each.waitsIn.endsWith('pipe_write'),
    )
    if (unreadMs < UNREAD_MS || waiting.length === 0) return []
    const names = waiting.map(({ name, pid }) => `${name} (pid ${pid})`).join(', ')
    const who = `${names} ${waiting.length === 1 ? 'waits' : 'wait'} in pipe_write`
    const output = `the output of ${processName({ containerId, execId })} for ${ageText(unreadMs)}`
    const reader = ['agent-ctl attach', containerId, execId].join(' ').trimEnd()
    return [`nobody has read ${output}, and ${who}: ${reader} reads it`]
  })
}

function frozenIn({ sandbox }: Findings): string[] {
  if (sandbox?.frozen === undefined) return []
  const { containers, fileSystems, thawInMs } = sandbox.frozen
  const what = `${containers.length} containers, ${fileSystems.length} file systems`
  return [`the pod is frozen (${what}), for ${ageText(thawInMs)} at most: agent-ctl thaw`]
}

function pausedIn({ containers = [] }: Findings): string[] {
  return containers
    .filter(({ state }) => state === 'paused')
    .map(({ containerId }) => {
      return `${containerId} is paused: agent-ctl ResumeContainer container_id=${containerId} lets it go on`
    })
}

function clockIn({ clockAheadMs = 0 }: Findings): string[] {
  if (Math.abs(clockAheadMs) < CLOCK_MS) return []
  const side = clockAheadMs > 0 ? 'ahead of' : 'behind'
  const by = ageText(Math.abs(clockAheadMs))
  return [
    `the guest's clock is ${by} ${side} this machine's: agent-ctl SetGuestDateTime sec=$(date +%s) sets it`,
  ]
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
    .slice(-NEWEST_EXITS)
    .filter(({ oomKilled, signal }) => oomKilled || UNASKED_SIGNALS.includes(signal))
  return bad.map((exit) => {
    const cause = exit.oomKilled ? 'was killed because memory ran out' : 'crashed'
    return `${processName(exit)} ${cause}: ${endText(exit)}, ${new Date(Number(exit.endedAtMs)).toISOString()}`
  })
}

/** SIGILL, SIGTRAP, SIGABRT, SIGBUS, SIGFPE, SIGSEGV, SIGSYS: the process has crashed. */
const UNASKED_SIGNALS: readonly number[] = [4, 5, 6, 7, 8, 11, 31]

/** Loop devices and the like have no driver. */
function idleDisksIn({ devices = [] }: Findings): string[] {
  const idle = devices.filter(({ driver, kind, path }) => {
    return driver === '' && kind === 'BLOCK' && !path.includes('/virtual/')
  })
  return idle.map(({ name }) => `disk ${name} has no driver`)
}

/** What the kernel and the guest lack; most pods do not need it. */
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
