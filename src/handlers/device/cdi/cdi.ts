import { AgentError } from '../../../base/errors.ts'
import type { Logger } from '../../../base/log.ts'
import { inStep } from '../../../base/step.ts'
import type { ResolvedEdits } from '../../../oci/cdi/apply-edits.ts'
import type { CdiNode, ResolvedNode } from '../../../oci/cdi/container-edits.ts'
import type { RequestedDevice } from '../../../oci/cdi/requested-devices.ts'
import type { Clock } from '../../../os/clock.ts'
import type { FileKind } from '../../../os/files/file-status.ts'
import type { Files } from '../../../os/files/files.ts'
import { type ChosenEdits, chooseEdits } from './choose-edits.ts'
import { SpecFolder } from './spec-folder.ts'

export interface CdiSettings {
  /** The folder of the specifications, `/run/cdi` in a guest. */
  readonly folder: string
  /** How long to wait for the specification of a kind (setting `agent.cdi_timeout`). */
  readonly timeoutMs: number
  /** Whether a container may request devices by VISIBLE_CDI_DEVICES (setting `agent.visible_cdi_devices`). */
  readonly readsVariable: boolean
}

interface CdiContext {
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
  dependencies: CdiContext,
  signal: AbortSignal,
): Promise<readonly ResolvedEdits[]> {
  if (requested.length === 0) return []
  const kinds = requested.map(({ kind }) => kind).join(', ')
  const chosen = await inStep('cdi', kinds, () => waitForEdits(requested, dependencies, signal))
  return Promise.all(chosen.map((each) => lookUpNodes(dependencies.files, each)))
}

async function waitForEdits(
  requested: readonly RequestedDevice[],
  { files, clock, log, settings }: CdiContext,
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

/** The OCI letters of node types. */
const TYPES: Readonly<Partial<Record<FileKind, string>>> = { block: 'b', character: 'c', fifo: 'p' }

/** Adds type, numbers and mode of the guest's nodes. Throws INTERNAL for a missing node or one of another type. */
async function lookUpNodes(files: Files, { edits, of }: ChosenEdits): Promise<ResolvedEdits> {
  const deviceNodes = await Promise.all(edits.deviceNodes.map((node) => lookUp(files, node, of)))
  return { ...edits, deviceNodes }
}

async function lookUp(files: Files, node: CdiNode, of: string): Promise<ResolvedNode> {
  const { path, hostPath, type: wanted, major, minor, fileMode, permissions, uid, gid } = node
  const rest = { path, permissions, uid, gid }
  if (wanted !== undefined && (major !== undefined || wanted === 'p')) {
    return { ...rest, type: wanted, major: major ?? 0, minor: minor ?? 0, fileMode: fileMode ?? 0 }
  }
  const guestPath = hostPath ?? path
  const status = await files.stat(guestPath)
  const type = status === undefined ? undefined : TYPES[status.kind]
  const what = `CDI device ${of}: deviceNodes: ${guestPath}`
  if (status === undefined || type === undefined) {
    throw new AgentError(
      'INTERNAL',
      `${what}: ${status === undefined ? 'no such node' : `is a ${status.kind}`} in the guest, want a device node`,
    )
  }
  // OCI has two letters for a character device, c and u.
  if (wanted !== undefined && wanted.replace('u', 'c') !== type) {
    throw new AgentError('INTERNAL', `${what}: type ${type} in the guest, want ${wanted}`)
  }
  const numbers = major === undefined ? status : { major, minor: minor ?? 0 }
  return { ...rest, type, major: numbers.major, minor: numbers.minor, fileMode: fileMode ?? status.mode }
}
