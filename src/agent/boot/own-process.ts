import { messageOf } from '../../base/errors.ts'
import type { BootContext, StepOutcome } from './step.ts'

/** The value of indispensable daemons. Helper programs and containers do not inherit it. */
const OOM_SCORE_ADJUSTMENT = -997

/** Nine times the weight of an ordinary process (sched(7)): callers wait for the agent even while containers are busy. */
const NICE = -10

/** The weight of the agent's session: the kernel divides CPU time between sessions first (sched(7)). */
const AUTOGROUP = '/proc/self/autogroup'

/** The signals that the kernel sends to the console's session for Ctrl-C, Ctrl-\ and a hang-up. */
const CONSOLE_SIGNALS = ['SIGINT', 'SIGQUIT', 'SIGHUP'] as const

/** The highest RLIMIT_NOFILE that the kernel accepts; the boot has raised it (guest-limits.ts). */
const MAX_OPEN_FILES = '/proc/sys/fs/nr_open'

const PATH = '/bin:/sbin:/usr/bin:/usr/sbin'

/** The outcome is always `done`, because each start of the agent is a new process. */
export async function prepareOwnProcess({ os, environment }: BootContext): Promise<StepOutcome> {
  // Input at the guest's console must not end the sandbox.
  for (const signal of CONSOLE_SIGNALS) os.system.onSignal(signal, () => {})
  // Each stream of a container takes a descriptor or two. Containers inherit the limit.
  os.system.setOpenFileLimit(Number(await os.files.readText(MAX_OPEN_FILES)))
  await os.files.write('/proc/self/oom_score_adj', String(OOM_SCORE_ADJUSTMENT))
  os.system.setNice(NICE)
  // A kernel that refuses the write (`noautogroup`) does not divide CPU time by sessions.
  await os.files.write(AUTOGROUP, String(NICE)).catch(() => {})
  os.system.setUmask(0o022)
  environment.PATH = PATH
  return 'done'
}

/** Under memory pressure the kernel drops file pages first; reading the agent from disk again takes half a minute. */
export function keepInMemory({ os, log }: Pick<BootContext, 'os' | 'log'>): void {
  try {
    os.system.lockMappedFiles()
  } catch (error) {
    log.warn('program not locked in memory', { error: messageOf(error) })
  }
}
