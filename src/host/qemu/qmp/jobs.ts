import { AgentError } from '../../../base/errors.ts'
import type { QmpClient } from './client.ts'
import type { Job } from './commands.ts'

export async function jobOf(qmp: QmpClient, id: string, signal: AbortSignal): Promise<Job | undefined> {
  const jobs = await qmp.execute('query-jobs', {}, signal)
  return jobs.find((job) => job.id === id)
}

/** Between two questions for a job, when no event tells of it. */
const ASK_MS = 1000

/** Waits until a job has one of the states. Throws INTERNAL when it is gone. */
export async function jobDone(
  qmp: QmpClient,
  id: string,
  signal: AbortSignal,
  wanted: readonly string[] = ['ready', 'concluded'],
): Promise<Job> {
  for (;;) {
    const limit = AbortSignal.any([signal, AbortSignal.timeout(ASK_MS)])
    const event = qmp.event(({ name, data }) => name === 'JOB_STATUS_CHANGE' && data.id === id, limit)
    event.catch(() => {})
    const job = await jobOf(qmp, id, signal)
    if (job === undefined) throw new AgentError('INTERNAL', 'QEMU has no such job any more')
    if (wanted.includes(job.status)) return job
    await event.catch(() => signal.throwIfAborted())
  }
}
