import { messageOf } from '../../base/errors.ts'
import type { BootContext, StepOutcome } from './step.ts'

/**
 * Limits of the whole kernel that are raised at boot, below /proc/sys: one container could use up the kernel's own, which
 * are small, for all others. What counts against a container then are its own limits of memory, processes and open files.
 * The archive's `sysctl.conf` sets the same ones where systemd boots the guest.
 */
export const GUEST_LIMITS: ReadonlyMap<string, bigint> = new Map([
  // The highest limit of open files that a host may name: that of Kata's unit.
  ['fs/nr_open', 2n ** 30n],
  ['fs/file-max', 2n ** 63n - 1n],
  ['fs/inotify/max_user_instances', 8192n],
  ['fs/inotify/max_user_watches', 2n ** 20n],
  ['kernel/pid_max', 2n ** 22n],
  // A runtime makes a session keyring for each process of a container.
  ['kernel/keys/maxkeys', 20_000n],
  ['kernel/keys/maxbytes', 2_000_000n],
  ['kernel/keys/root_maxkeys', 1_000_000n],
  ['kernel/keys/root_maxbytes', 25_000_000n],
])

/** Raises {@link GUEST_LIMITS}. What is higher stays, and so does what the kernel refuses or does not have. */
export async function raiseGuestLimits({ os, log }: Pick<BootContext, 'os' | 'log'>): Promise<StepOutcome> {
  let outcome: StepOutcome = 'already'
  for (const [name, limit] of GUEST_LIMITS) {
    const file = `/proc/sys/${name}`
    if ((await os.files.stat(file)) === undefined) continue
    if (BigInt((await os.files.readText(file)).trim()) >= limit) continue
    try {
      await os.files.write(file, String(limit))
      outcome = 'done'
    } catch (error) {
      log.warn('limit of the guest not raised', {
        limit: name.replaceAll('/', '.'),
        error: messageOf(error),
      })
    }
  }
  return outcome
}
