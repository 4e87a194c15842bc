import { AgentError } from '../../../base/errors.ts'
import type { Logger } from '../../../base/log.ts'
import type { ResolvedEdits } from '../../../oci/cdi/apply-edits.ts'
import type { AskedDevice } from '../../../oci/cdi/asked-for.ts'
import type { Clock } from '../../../os/clock.ts'
import type { Files } from '../../../os/files/files.ts'
import { type ChosenEdits, chooseEdits } from './choose-edits.ts'
import { lookUpNodes } from './look-up-nodes.ts'
import { SpecFolder } from './spec-folder.ts'

/** How devices are found by their CDI names. */
export interface CdiSettings {
  /** Where their specifications are, `/run/cdi` in a guest. */
  readonly folder: string
  /** How long a kind is waited for that no specification describes (setting `agent.cdi_timeout`). */
  readonly timeoutMs: number
  /** Whether a container may ask by VISIBLE_CDI_DEVICES (setting `agent.visible_cdi_devices`). */
  readonly readsVariable: boolean
}

interface CdiDependencies {
  readonly files: Files
  readonly clock: Clock
  readonly log: Logger
  readonly settings: CdiSettings
}

/** Drivers write the specifications when they have set their devices up; nothing tells when that is. */
const LOOK_AGAIN_MS = 1000

/**
 * The edits for CDI devices, in the order in which they are to be applied; none when none is asked for (behaviour spec,
 * section F.5). Throws INTERNAL when a device does not exist or its kind has not come in time, or what `signal` is
 * aborted with.
 */
export async function findCdiEdits(
  asked: readonly AskedDevice[],
  dependencies: CdiDependencies,
  signal: AbortSignal,
): Promise<readonly ResolvedEdits[]> {
  if (asked.length === 0) return []
  const chosen = await waitForEdits(asked, dependencies, signal)
  return Promise.all(chosen.map((each) => lookUpNodes(dependencies.files, each)))
}

async function waitForEdits(
  asked: readonly AskedDevice[],
  { files, clock, log, settings }: CdiDependencies,
  signal: AbortSignal,
): Promise<readonly ChosenEdits[]> {
  const folder = new SpecFolder(files, settings.folder)
  const end = clock.monotonicMs() + settings.timeoutMs
  const told = new Set<string>()
  for (;;) {
    signal.throwIfAborted()
    const contents = await folder.read()
    for (const problem of contents.problems) {
      if (!told.has(problem)) log.warn('CDI specification not read', { error: problem })
      told.add(problem)
    }
    const outcome = chooseEdits(asked, contents)
    if ('chosen' in outcome) return outcome.chosen
    const left = end - clock.monotonicMs()
    if (left <= 0) throw timedOut(outcome.missing, settings, contents.problems)
    // The call may be over before, and its own error would not say why.
    if (!told.has(outcome.missing)) {
      log.info('waiting for CDI device', { device: outcome.missing, folder: settings.folder })
    }
    told.add(outcome.missing)
    await clock.sleep(Math.min(LOOK_AGAIN_MS, left), signal)
  }
}

function timedOut(missing: string, settings: CdiSettings, problems: readonly string[]): AgentError {
  const { folder, timeoutMs } = settings
  const what = `Timeout after ${timeoutMs / 1000}s waiting for CDI device ${missing}: nothing in ${folder} describes it`
  return new AgentError('INTERNAL', [what, ...problems].join('; '))
}
