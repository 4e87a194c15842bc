import type { BootContext, StepOutcome } from './step.ts'

/** As of daemons the host cannot do without (spec A.10). Helper programs and containers do not inherit it. */
const OOM_SCORE_ADJUSTMENT = -997

/**
 * Of CPU time the agent uses little, but whoever calls it waits for that little, whatever containers and runtimes do.
 * Nine times the weight of an ordinary process (sched(7)).
 */
const NICE = -10

/** Where the kernel gives CPU time to sessions first, which it then shares out (sched(7)): the agent's session. */
const AUTOGROUP = '/proc/self/autogroup'

/** What the kernel sends to a session whose terminal is the console: the keys Ctrl-C and Ctrl-\, and a line that drops. */
const CONSOLE_SIGNALS = ['SIGINT', 'SIGQUIT', 'SIGHUP'] as const

const PATH = '/bin:/sbin:/usr/bin:/usr/sbin'

/**
 * Signals, limits, priority, umask and PATH of the agent itself: never done before, for each start of the agent is a new process.
 * A stream of a container costs a descriptor or two, so as many are allowed as the kernel gives.
 */
export async function prepareOwnProcess({ os, environment }: BootContext): Promise<StepOutcome> {
  // The sandbox must not end because somebody typed at the guest's console.
  for (const signal of CONSOLE_SIGNALS) os.system.onSignal(signal, () => {})
  os.system.setOpenFileLimit(Number(await os.files.readText('/proc/sys/fs/nr_open')))
  await os.files.write('/proc/self/oom_score_adj', String(OOM_SCORE_ADJUSTMENT))
  os.system.setNice(NICE)
  // A kernel that refuses (`noautogroup`) does not share CPU time out to sessions either.
  await os.files.write(AUTOGROUP, String(NICE)).catch(() => {})
  os.system.setUmask(0o022)
  environment.PATH = PATH
  return 'done'
}
