import { AgentError } from '../../../base/errors.ts'
import type { BlockJob } from '../../qemu/qmp/commands.ts'
import { type BulkDisk, type BulkQemu, NAMES } from './bulk.ts'

type Qmp = Pick<BulkQemu, 'qmp' | 'signal'>

/** How long a job may take to end that was told to. */
const END_MS = 5000

/** Between two questions for a job, when no event tells of it. */
const ASK_MS = 500

export interface MirrorPlan {
  readonly index: number
  readonly disk: BulkDisk
  readonly sync: 'full' | 'top' | 'none'
  readonly mode: 'background' | 'write-blocking'
  /** Bytes per second; 0 is no limit. */
  readonly speed: number
}

/**
 * Begins to copy a disk to the node of its export. After an error the mirror stands still: QEMU 7.2 crashes when one that writes to
 * both ends while a write of the guest is on its way.
 */
export async function beginMirror({ qmp, signal }: Qmp, plan: MirrorPlan): Promise<void> {
  const { disk, index, mode, speed, sync } = plan
  const names = { 'job-id': NAMES.disk(index), device: disk.node, target: NAMES.disk(index) }
  const options = { ...names, 'filter-node-name': NAMES.filter(index), 'copy-mode': mode, speed, sync }
  const onError = { 'on-source-error': 'stop', 'on-target-error': 'stop' } as const
  await qmp.execute('blockdev-mirror', { ...options, ...onError, 'auto-dismiss': false }, signal)
}

/** Waits until a mirror has one of the states. Throws once it has met an error. */
export async function mirrorDone(
  { qmp, signal }: Qmp,
  { index, key }: { readonly index: number; readonly key: string },
  wanted: readonly string[],
): Promise<void> {
  const id = NAMES.disk(index)
  for (;;) {
    const limit = AbortSignal.any([signal, AbortSignal.timeout(ASK_MS)])
    const isOurs = ({ data: { device, id: job } }: { readonly data: Readonly<Record<string, unknown>> }) =>
      device === id || job === id
    const event = qmp.event(isOurs, limit)
    event.catch(() => {})
    const job = checkMirror(key, await mirrorOf({ qmp, signal }, id))
    if (wanted.includes(job.status)) return
    await event.catch(() => signal.throwIfAborted())
  }
}

/** Ends a mirror that is ready once both disks have the same content. */
export async function finishMirror({ qmp, signal }: Qmp, index: number, key: string): Promise<void> {
  const id = NAMES.disk(index)
  await qmp.execute('block-job-cancel', { device: id }, signal)
  await mirrorDone({ qmp, signal }, { index, key }, ['concluded'])
  await qmp.execute('job-dismiss', { id }, signal)
}

/** Ends a mirror wherever it is: what was not copied stays so. No write of the guest may be on its way to both. */
export async function stopMirror({ qmp, signal }: Qmp, id: string): Promise<void> {
  const limit = AbortSignal.any([signal, AbortSignal.timeout(END_MS)])
  const job = await mirrorOf({ qmp, signal }, id)
  if (job === undefined) return
  if (job.status !== 'concluded') await qmp.execute('block-job-cancel', { device: id, force: true }, limit)
  for (;;) {
    const event = qmp.event(
      ({ data }) => data.id === id,
      AbortSignal.any([limit, AbortSignal.timeout(ASK_MS)]),
    )
    event.catch(() => {})
    if ((await mirrorOf({ qmp, signal: limit }, id))?.status === 'concluded') break
    await event.catch(() => limit.throwIfAborted())
  }
  await qmp.execute('job-dismiss', { id }, signal)
}

/** Throws for a mirror that has met an error. RESOURCE_EXHAUSTED: the target has no room. */
export function checkMirror(key: string, job: BlockJob | undefined): BlockJob {
  const refused = (text: string) => new AgentError('FAILED_PRECONDITION', `disk ${key}: ${text}`)
  if (job === undefined) throw refused('QEMU has no mirror of it any more')
  if (job.error !== undefined) throw refused(`QEMU: ${job.error}`)
  if (job['io-status'] === 'nospace')
    throw new AgentError('RESOURCE_EXHAUSTED', `disk ${key}: no room at the target`)
  if (job['io-status'] !== 'ok') throw refused('the connection, or one of the disks, has failed')
  return job
}

export async function mirrorOf({ qmp, signal }: Qmp, id: string): Promise<BlockJob | undefined> {
  const jobs = await qmp.execute('query-block-jobs', {}, signal)
  return jobs.find(({ device }) => device === id)
}
