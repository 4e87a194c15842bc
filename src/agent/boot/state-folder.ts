import { ensureMounted } from './mounts.ts'
import type { BootContext, StepOutcome } from './step.ts'

/** Where the agent's state is (proto/state). */
export const STATE_FOLDER = '/run/microvm-agent/saved'

/** Several times what a pod needs. Only what is used takes memory. */
const ROOM = 'size=96m,nr_inodes=65536'

/** Mounts a file system of its own for the agent's state: nothing else in the guest can take its room. */
export async function mountStateFolder(context: BootContext): Promise<StepOutcome> {
  return await ensureMounted(context, await context.os.mounts.list(), {
    ...{ source: 'tmpfs', target: STATE_FOLDER, type: 'tmpfs', data: `mode=700,${ROOM}` },
    flags: ['nosuid', 'nodev', 'noexec'],
  })
}
