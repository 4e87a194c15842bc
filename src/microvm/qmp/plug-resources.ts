import { AgentError } from '../../base/errors.ts'
import { qemuId, type SpecKey } from '../spec-key.ts'
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

/** Plugs a module of memory in; the guest uses an `nvdimm` as a disk. */
export async function plugMemory(
  qmp: QmpClient,
  memory: { readonly key: SpecKey; readonly sizeMib: number; readonly driver?: 'pc-dimm' | 'nvdimm' },
  signal: AbortSignal,
): Promise<void> {
  const id = qemuId(memory.key)
  const backend = `${id}-backend`
  const size = memory.sizeMib * MIB
  await qmp.execute(
    'object-add',
    { 'qom-type': 'memory-backend-memfd', id: backend, size, share: true },
    signal,
  )
  try {
    await qmp.execute('device_add', { driver: memory.driver ?? 'pc-dimm', id, memdev: backend }, signal)
  } catch (error) {
    await qmp.execute('object-del', { id: backend }, signal)
    throw error
  }
}
