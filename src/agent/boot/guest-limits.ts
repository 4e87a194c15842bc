import { messageOf } from '../../base/errors.ts'
import type { BootContext, StepOutcome } from './step.ts'

/**
 * Kernel-wide limits below /proc/sys, raised because one container could use up the small defaults for all others. The
 * archive's `sysctl.conf` sets the same limits where systemd boots the guest.
 */
export const GUEST_LIMITS: ReadonlyMap<string, bigint> = new Map([
  // The limit of open files in Kata's unit, the highest that a host asks for.
  ['fs/nr_open', 2n ** 30n],
  ['fs/file-max', 2n ** 63n - 1n],
  ['fs/inotify/max_user_instances', 8192n],
  ['fs/inotify/max_user_watches', 2n ** 20n],
  ['kernel/pid_max', 2n ** 22n],
  // The OCI runtime makes a session keyring for each process.
  ['kernel/keys/maxkeys', 20_000n],
  ['kernel/keys/maxbytes', 2_000_000n],
  ['kernel/keys/root_maxkeys', 1_000_000n],
  ['kernel/keys/root_maxbytes', 25_000_000n],
])

/** Leaves a limit that is already higher, that the kernel lacks, or that the kernel refuses to raise. */
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
