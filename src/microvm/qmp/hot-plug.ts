import type { DiskDevice, FileBackend, NicDevice, TapBackend } from '../spec.ts'
import { qemuId, type SpecKey } from '../spec-key.ts'
import { undoAndThrow } from '../undo-and-throw.ts'
import type { QmpClient } from './client.ts'

/** A disk to plug into a running machine. */
export interface HotDisk {
  readonly key: SpecKey
  readonly device: DiskDevice & { readonly interface?: 'virtio-blk' }
  readonly backend: FileBackend & { readonly access: 'read-only' | 'read-write' }
  /**
   * The bus of its `slot`: a root port, which has slot 0 alone, or a bridge behind one, which has slots from 1 on
   * (machine `q35`); undefined for the first bus (machine `pc`).
   */
  readonly bus: SpecKey | undefined
}

/** Plugs a disk in. The guest finds it at the slots of the bridges on the way, then its own: `09/00`. */
export async function plugDisk(qmp: QmpClient, disk: HotDisk, signal: AbortSignal): Promise<void> {
  const node = qemuId(disk.device.backend)
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

/** A network card to plug into a running machine; places as for {@link HotDisk}. */
export interface HotNic {
  readonly key: SpecKey
  readonly device: NicDevice
  readonly backend: TapBackend
  readonly bus: SpecKey | undefined
}

/** Plugs a network card in. Its tap interface is in the namespace that QEMU runs in. */
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

/** Makes a disk that was plugged in larger, with the file below it. */
export async function growDisk(
  qmp: QmpClient,
  disk: HotDisk,
  sizeBytes: number,
  signal: AbortSignal,
): Promise<void> {
  const node = qemuId(disk.device.backend)
  await qmp.execute('block_resize', { 'node-name': node, size: sizeBytes }, signal)
}

/** Takes a disk out again: asks the guest, waits until it has given it back, and closes the file. */
export async function unplugDisk(qmp: QmpClient, disk: HotDisk, signal: AbortSignal): Promise<void> {
  const id = qemuId(disk.key)
  const gone = qmp.event((event) => event.name === 'DEVICE_DELETED' && event.data.device === id, signal)
  // When device_del itself fails, that is the error to show; the wait ends with the connection or the signal.
  gone.catch(() => {})
  await qmp.execute('device_del', { id }, signal)
  await gone
  await qmp.execute('blockdev-del', { 'node-name': qemuId(disk.device.backend) }, signal)
}

function placeOf({ device, bus }: HotDisk | HotNic): Record<string, string> {
  const addr = `0x${device.slot.toString(16)}`
  // Root ports have no I/O space, which the legacy interface needs.
  return bus === undefined ? { addr } : { addr, bus: qemuId(bus), 'disable-legacy': 'on' }
}
