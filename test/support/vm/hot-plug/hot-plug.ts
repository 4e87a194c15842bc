import { AgentError } from '../../../../src/base/errors.ts'
import { undoAndThrow } from '../../../../src/base/undo.ts'
import type { QmpClient } from '../../../../src/host/qemu/qmp/client.ts'
import type { DiskDevice, FileBackend, NicDevice, TapBackend } from '../../../../src/host/spec/spec.ts'
import { nodeNames, qemuId, type SpecKey } from '../../../../src/host/spec/spec-key.ts'

export interface HotDisk {
  readonly key: SpecKey
  readonly device: DiskDevice & { readonly interface?: 'virtio-blk' }
  readonly backend: FileBackend & { readonly access: 'read-only' | 'read-write' }
  /**
   * The bus of the disk's `slot`: a root port (machine `q35`), which has only slot 0, or a bridge, which has slots from 1
   * on; undefined for the first bus (machine `pc`).
   */
  readonly bus: SpecKey | undefined
}

/** Plugs a disk in. Its PCI path in the guest is the slots of the bridges on the way, then its own: `09/00`. */
export async function plugDisk(qmp: QmpClient, disk: HotDisk, signal: AbortSignal): Promise<void> {
  const { format: node } = nodeNames(disk.device.backend)
  await qmp.execute(
    'blockdev-add',
    {
      driver: 'raw',
      'node-name': node,
      'read-only': disk.backend.access === 'read-only',
      file: { driver: 'file', filename: disk.backend.path },
    },
    signal,
  )
  const { serial } = disk.device
  try {
    await qmp.execute(
      'device_add',
      { driver: 'virtio-blk-pci', id: qemuId(disk.key), drive: node, serial, ...placeOf(disk) },
      signal,
    )
  } catch (error) {
    await undoAndThrow(error, (limit) => qmp.execute('blockdev-del', { 'node-name': node }, limit))
  }
}

/** A network card to plug into a running machine; `bus` is as for {@link HotDisk}. */
export interface HotNic {
  readonly key: SpecKey
  readonly device: NicDevice
  readonly backend: TapBackend
  readonly bus: SpecKey | undefined
}

/** Plugs a network card in. Its tap interface must be in QEMU's network namespace. */
export async function plugNic(qmp: QmpClient, nic: HotNic, signal: AbortSignal): Promise<void> {
  const { device, backend } = nic
  const id = qemuId(device.backend)
  const tap = { type: 'tap', id, ifname: backend.interfaceName, script: 'no', downscript: 'no' } as const
  await qmp.execute('netdev_add', tap, signal)
  try {
    await qmp.execute(
      'device_add',
      { driver: 'virtio-net-pci', id: qemuId(nic.key), netdev: id, mac: device.mac, ...placeOf(nic) },
      signal,
    )
  } catch (error) {
    await undoAndThrow(error, (limit) => qmp.execute('netdev_del', { id }, limit))
  }
}

export async function growDisk(
  qmp: QmpClient,
  disk: HotDisk,
  sizeBytes: number,
  signal: AbortSignal,
): Promise<void> {
  const { format: node } = nodeNames(disk.device.backend)
  await qmp.execute('block_resize', { 'node-name': node, size: sizeBytes }, signal)
}

/** Unplugs a disk: asks the guest, waits until the guest has released it, and closes the file. */
export async function unplugDisk(qmp: QmpClient, disk: HotDisk, signal: AbortSignal): Promise<void> {
  const id = qemuId(disk.key)
  const gone = qmp.event((event) => event.name === 'DEVICE_DELETED' && event.data.device === id, signal)
  // When device_del itself fails, its error is thrown; then the wait ends with the connection or the signal.
  gone.catch(() => {})
  await qmp.execute('device_del', { id }, signal)
  await gone
  await qmp.execute('blockdev-del', { 'node-name': nodeNames(disk.device.backend).format }, signal)
}

function placeOf({ device, bus }: HotDisk | HotNic): Record<string, string> {
  const addr = `0x${device.slot.toString(16)}`
  // The legacy interface needs I/O space, which root ports do not have.
  return bus === undefined ? { addr } : { addr, bus: qemuId(bus), 'disable-legacy': 'on' }
}

const MIB = 2 ** 20

/** Plugs in the next CPU that the machine has room for. Throws FAILED_PRECONDITION when none is left. */
export async function plugCpu(qmp: QmpClient, key: SpecKey, signal: AbortSignal): Promise<void> {
  const cpus = await qmp.execute('query-hotpluggable-cpus', {}, signal)
  // QEMU lists the highest first.
  const cpu = cpus.findLast((each) => each['qom-path'] === undefined)
  if (cpu === undefined) throw new AgentError('FAILED_PRECONDITION', 'machine: no room for another CPU')
  await qmp.execute('device_add', { driver: cpu.type, id: qemuId(key), ...cpu.props }, signal)
}

export interface HotMemory {
  readonly key: SpecKey
  readonly sizeMib: number
  /** The root port for a virtio-mem device. Without it, the memory is a module, which takes a memory slot. */
  readonly rootPort?: SpecKey
  /** The kind of module, `pc-dimm` by default. The guest uses an `nvdimm` as a disk. */
  readonly driver?: 'pc-dimm' | 'nvdimm'
}

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
