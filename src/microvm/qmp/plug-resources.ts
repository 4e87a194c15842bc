import { AgentError } from '../../base/errors.ts'
import { qemuId, type SpecKey } from '../spec-key.ts'
import { undoAndThrow } from '../undo-and-throw.ts'
import type { QmpClient } from './client.ts'

const MIB = 2 ** 20

/** Plugs the next CPU in that the machine has room for. Throws FAILED_PRECONDITION when there is none left. */
export async function plugCpu(qmp: QmpClient, key: SpecKey, signal: AbortSignal): Promise<void> {
  const cpus = await qmp.execute('query-hotpluggable-cpus', {}, signal)
  // QEMU lists the highest first.
  const cpu = cpus.findLast((each) => each['qom-path'] === undefined)
  if (cpu === undefined) throw new AgentError('FAILED_PRECONDITION', 'the machine has room for no other CPU')
  await qmp.execute('device_add', { driver: cpu.type, id: qemuId(key), ...cpu.props }, signal)
}

/** Memory to plug into a running machine. */
export interface HotMemory {
  readonly key: SpecKey
  readonly sizeMib: number
  /** The root port that a virtio-mem device goes into; a module, which takes a slot, where it is left out. */
  readonly rootPort?: SpecKey
  /** What kind of module: the guest uses an `nvdimm` as a disk. */
  readonly driver?: 'pc-dimm' | 'nvdimm'
}

/** Plugs memory in, all of it at once. */
export async function plugMemory(qmp: QmpClient, memory: HotMemory, signal: AbortSignal): Promise<void> {
  const id = qemuId(memory.key)
  const backend = `${id}-backend`
  const size = memory.sizeMib * MIB
  await qmp.execute(
    'object-add',
    { 'qom-type': 'memory-backend-memfd', id: backend, size, share: true },
    signal,
  )
  try {
    const device =
      memory.rootPort === undefined
        ? { driver: memory.driver ?? 'pc-dimm' }
        : { driver: 'virtio-mem-pci', bus: qemuId(memory.rootPort), 'requested-size': size }
    await qmp.execute('device_add', { ...device, id, memdev: backend }, signal)
  } catch (error) {
    await undoAndThrow(error, (limit) => qmp.execute('object-del', { id: backend }, limit))
  }
}
