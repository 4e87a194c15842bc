import { AgentError } from '../../base/errors.ts'
import type { UndoList } from '../../base/undo.ts'
import type { Files } from '../../os/files/files.ts'
import type { Os } from '../../os/os.ts'

const DRIVER = 'vfio-pci'
const PCI = '/sys/bus/pci'

/** Loads the driver that hands devices to processes. Throws INTERNAL with modprobe's words. */
export async function loadVfio(
  { files, tools }: Pick<Os, 'files' | 'tools'>,
  signal: AbortSignal,
): Promise<void> {
  if ((await files.stat(`${PCI}/drivers/${DRIVER}`)) !== undefined) return
  const result = await tools.run(['/sbin/modprobe', '--', DRIVER], { signal })
  if (result.exitCode === 0) return
  throw new AgentError('INTERNAL', `driver ${DRIVER} not loaded: ${result.stderr.trim()}`)
}

/**
 * Takes a PCI device from its driver, if it has one, and gives it to vfio-pci. Returns its IOMMU group. Throws INTERNAL
 * when it has none; `undo` gets the way back.
 */
export async function bindToVfio(files: Files, address: string, undo: UndoList): Promise<string> {
  const device = `${PCI}/devices/${address}`
  if ((await files.lstat(`${device}/iommu_group`)) === undefined) {
    throw new AgentError('INTERNAL', `failed to get VFIO group of ${address}: the guest has no IOMMU for it`)
  }
  const group = lastOf(await files.readLink(`${device}/iommu_group`))
  if ((await driverOf(files, device)) === DRIVER) return group
  undo.add(`give ${address} back`, () => rebind(files, address, ''))
  await rebind(files, address, DRIVER)
  const driver = await driverOf(files, device)
  if (driver === DRIVER) return group
  throw new AgentError('INTERNAL', `${address} is not bound to ${DRIVER} but to ${driver ?? 'no driver'}`)
}

/** Has the kernel look for a driver anew: that one alone, or any when it is empty. */
async function rebind(files: Files, address: string, driver: string): Promise<void> {
  const device = `${PCI}/devices/${address}`
  // An empty line takes the override away.
  await files.write(`${device}/driver_override`, driver === '' ? '\n' : driver)
  if ((await driverOf(files, device)) !== undefined) await files.write(`${device}/driver/unbind`, address)
  await files.write(`${PCI}/drivers_probe`, address)
}

async function driverOf(files: Files, device: string): Promise<string | undefined> {
  const link = `${device}/driver`
  return (await files.lstat(link)) === undefined ? undefined : lastOf(await files.readLink(link))
}

function lastOf(path: string): string {
  return path.slice(path.lastIndexOf('/') + 1)
}
