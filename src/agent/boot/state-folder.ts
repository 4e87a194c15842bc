import { dirname } from 'node:path/posix'
import { ensureMounted } from './mounts.ts'
import type { BootContext, StepOutcome } from './step.ts'

/** Holds the agent's state (proto/state). */
export const STATE_FOLDER = '/run/microvm-agent/saved'

/** Several times the need of a pod. Only the used part takes memory. */
const ROOM = 'size=96m,nr_inodes=65536'

/** A separate tmpfs, so that nothing else in the guest can use up its space. */
export async function mountStateFolder(context: BootContext): Promise<StepOutcome> {
  // A file system of its own has its own device number; the table of all mounts takes milliseconds to read.
  const { scratch } = context.os
  const own = await scratch.stat(STATE_FOLDER)
  if (own !== undefined && own.device !== (await scratch.stat(dirname(STATE_FOLDER)))?.device)
    return 'already'
  return await ensureMounted(context, await context.os.mounts.list(), {
    source: 'tmpfs',
    target: STATE_FOLDER,
    type: 'tmpfs',
    data: `mode=700,${ROOM}`,
    flags: ['nosuid', 'nodev', 'noexec'],
  })
}
