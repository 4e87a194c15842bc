import { cpus, freemem, totalmem } from 'node:os'
import { UsageError } from '../command-line/usage-error.mjs'

export interface GuestSize {
  readonly memoryMib: number
  readonly cpus: number
}

export interface MachineSize extends GuestSize {
  /** What programs could take now without swap. */
  readonly availableMib: number
}

/** What a guest has without --cpus. A machine with fewer is no reason to warn. */
const DEFAULT_CPUS = 2

export function machineSize(): MachineSize {
  const [memoryMib, availableMib] = [totalmem(), freemem()].map((bytes) => Math.floor(bytes / 2 ** 20))
  return { memoryMib: memoryMib ?? 0, availableMib: availableMib ?? 0, cpus: cpus().length }
}

/**
 * A sentence for each size that makes the guest slow. Throws {@link UsageError} for more memory than the machine has: the
 * kernel would end QEMU, or other programs, once the guest uses it.
 */
export function checkMachine(guest: GuestSize, machine: MachineSize): readonly string[] {
  const [memory, count] = [`--memory ${guest.memoryMib}`, `--cpus ${guest.cpus}`]
  if (guest.memoryMib > machine.memoryMib)
    throw new UsageError(`${memory}: this machine has ${machine.memoryMib} MiB, want less`)
  const isScarce = guest.memoryMib > machine.availableMib
  return [
    ...(isScarce
      ? [`${memory}: only ${machine.availableMib} MiB are free now, so the guest may be slow`]
      : []),
    ...(guest.cpus > Math.max(machine.cpus, DEFAULT_CPUS)
      ? [`${count}: this machine has ${machine.cpus}, so the guest is slow`]
      : []),
  ]
}
