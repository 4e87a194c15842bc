import { throttleCommand } from '../../qemu/machine/disk-limits.ts'
import type { Machine } from './machine.ts'

/** Gives a disk its limits; `words` are those of the step. */
export async function throttleDisk(
  { ending, machine }: { readonly ending: () => AbortSignal; readonly machine: Machine | undefined },
  [backend = '', device = '', iops, bytesPerSecond]: readonly string[],
): Promise<void> {
  const limits = { iops: Number(iops), bytesPerSecond: Number(bytesPerSecond) }
  await machine?.qmp.command(throttleCommand({ backend, device, ...limits }), ending())
}
