import { AgentError } from '../../../base/errors.ts'
import type { Job } from '../../qemu/qmp/commands.ts'
import { jobDone, jobOf } from '../../qemu/qmp/jobs.ts'
import { type BulkDisk, type BulkQemu, NAMES } from './bulk.ts'

type Qmp = Pick<BulkQemu, 'qmp' | 'signal'>

/** How long a job may take to end that was told to. */
const END_MS = 5000

export interface MirrorPlan {
  readonly index: number
  readonly disk: BulkDisk
  readonly sync: 'full' | 'top' | 'none'
  readonly mode: 'background' | 'write-blocking'
  /** Bytes per second; 0 is no limit. */
  readonly speed: number
}

/** Begins to copy a disk to the node of its export. */
export async function beginMirror({ qmp, signal }: Qmp, plan: MirrorPlan): Promise<void> {
  const { disk, index, mode, speed, sync } = plan
  const names = { 'job-id': NAMES.disk(index), device: disk.node, target: NAMES.disk(index) }
  const options = { ...names, 'filter-node-name': NAMES.filter(index), 'copy-mode': mode, speed, sync }
  await qmp.execute('blockdev-mirror', { ...options, 'auto-dismiss': false }, signal)
}

/** Ends a mirror that is ready once both disks have the same content. */
export async function finishMirror({ qmp, signal }: Qmp, index: number, key: string): Promise<void> {
  const id = NAMES.disk(index)
  await qmp.execute('block-job-cancel', { device: id }, signal)
  const job = await jobDone(qmp, id, signal, ['concluded'])
  await qmp.execute('job-dismiss', { id }, signal)
  if (job.error !== undefined) throw mirrorError(key, job.error)
}

/** Ends a mirror wherever it is: what was not copied stays so. */
export async function stopMirror({ qmp, signal }: Qmp, id: string): Promise<void> {
  if ((await jobOf(qmp, id, signal)) === undefined) return
  const limit = () => AbortSignal.any([signal, AbortSignal.timeout(END_MS)])
  await qmp.execute('block-job-cancel', { device: id, force: true }, limit()).catch(() => {})
  await jobDone(qmp, id, limit(), ['concluded']).catch(async () => {
    signal.throwIfAborted()
    // It waits for a target that does not answer.
    await yankDisk({ qmp, signal }, id)
    await jobDone(qmp, id, limit(), ['concluded'])
  })
  await qmp.execute('job-dismiss', { id }, signal)
}

/** Ends the connection of a disk's node at once. */
async function yankDisk({ qmp, signal }: Qmp, node: string): Promise<void> {
  await qmp.execute('yank', { instances: [{ type: 'block-node', 'node-name': node }] }, signal)
}

/** Throws for a job that has failed. RESOURCE_EXHAUSTED: the target has no room. */
export function checkJob(key: string, job: Job | undefined): Job {
  if (job === undefined) throw mirrorError(key, 'QEMU has no such job any more')
  if (job.error !== undefined) throw mirrorError(key, job.error)
  return job
}

function mirrorError(key: string, words: string): AgentError {
  const isFull = /No space left|quota exceeded|File too large/i.test(words)
  return new AgentError(isFull ? 'RESOURCE_EXHAUSTED' : 'FAILED_PRECONDITION', `disk ${key}: QEMU: ${words}`)
}
