import { machinesOf } from '../documents/document-record.ts'
import type { MachineInstance } from '../instance.ts'

/**
 * Whether a device leaves at the next cold boot alone. QEMU 7.2 does not take back the emulation's hold on the memory map of a CPU
 * that has left, and ends by a signal at the next change of the map. With KVM there is no such hold.
 */
export async function isHeld(instance: MachineInstance, key: string): Promise<boolean> {
  if (machinesOf(instance.record)?.current?.devices[key]?.kind !== 'cpu') return false
  const { enabled } = await instance.machine().qmp.execute('query-kvm', {}, instance.ending)
  return !enabled
}
