import { AgentError } from '../../../base/errors.ts'
import type { Logger } from '../../../base/log.ts'
import { inStep } from '../../../base/step.ts'
import type { ResolvedEdits } from '../../../oci/cdi/apply-edits.ts'
import type { RequestedDevice } from '../../../oci/cdi/requested-devices.ts'
import type { Clock } from '../../../os/clock.ts'
import type { Files } from '../../../os/files/files.ts'
import { type ChosenEdits, chooseEdits } from './choose-edits.ts'
import { lookUpNodes } from './look-up-nodes.ts'
import { SpecFolder } from './spec-folder.ts'

export interface CdiSettings {
  /** The folder of the specifications, `/run/cdi` in a guest. */
  readonly folder: string
  /** How long to wait for the specification of a kind (setting `agent.cdi_timeout`). */
  readonly timeoutMs: number
  /** Whether a container may request devices by VISIBLE_CDI_DEVICES (setting `agent.visible_cdi_devices`). */
  readonly readsVariable: boolean
}

interface CdiDependencies {
  readonly files: Files
  readonly clock: Clock
  readonly log: Logger
  readonly settings: CdiSettings
}

/** How often the folder is read: drivers write specifications when their devices are ready, without any event. */
const RETRY_MS = 1000

/** Returns the edits in order. Throws INTERNAL for an unknown device, and for a kind that is not described in time. */
export async function waitForCdiEdits(
  requested: readonly RequestedDevice[],
  dependencies: CdiDependencies,
  signal: AbortSignal,
): Promise<readonly ResolvedEdits[]> {
  if (requested.length === 0) return []
  const kinds = requested.map(({ kind }) => kind).join(', ')
  const chosen = await inStep('cdi', kinds, () => waitForEdits(requested, dependencies, signal))
  return Promise.all(chosen.map((each) => lookUpNodes(dependencies.files, each)))
}

async function waitForEdits(
  requested: readonly RequestedDevice[],
  { files, clock, log, settings }: CdiDependencies,
  signal: AbortSignal,
): Promise<readonly ChosenEdits[]> {
  const folder = new SpecFolder(files, settings.folder)
  const end = clock.monotonicMs() + settings.timeoutMs
  const logged = new Set<string>()
  for (;;) {
    signal.throwIfAborted()
    const contents = await folder.read()
    for (const problem of contents.problems) {
      if (!logged.has(problem)) log.warn('CDI specification not read', { error: problem })
      logged.add(problem)
    }
    const outcome = chooseEdits(requested, contents)
    if ('chosen' in outcome) return outcome.chosen
    const remainingMs = end - clock.monotonicMs()
    if (remainingMs <= 0) throw timedOut(outcome.missing, settings, contents.problems)
    // Log it now, because the call may time out first with an error that does not name the device.
    if (!logged.has(outcome.missing)) {
      log.info('waiting for CDI device', { device: outcome.missing, folder: settings.folder })
    }
    logged.add(outcome.missing)
    await clock.sleep(Math.min(RETRY_MS, remainingMs), signal)
  }
}

function timedOut(missing: string, settings: CdiSettings, problems: readonly string[]): AgentError {
  const { folder, timeoutMs } = settings
  const what = `Timeout after ${timeoutMs / 1000}s waiting for CDI device ${missing}: no specification in ${folder} has it`
  return new AgentError('INTERNAL', [what, ...problems].join('; '))
}
