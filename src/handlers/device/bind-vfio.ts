import { AgentError } from '../../base/errors.ts'
import type { UndoList } from '../../base/undo.ts'
import type { Files } from '../../os/files/files.ts'
import type { Os } from '../../os/os.ts'

const DRIVER = 'vfio-pci'
const PCI = '/sys/bus/pci'

/** Throws INTERNAL with modprobe's output. */
export async function loadVfio(
  { files, tools }: Pick<Os, 'files' | 'tools'>,
  signal: AbortSignal,
): Promise<void> {
  if ((await files.stat(`${PCI}/drivers/${DRIVER}`)) !== undefined) return
  const result = await tools.run(['/sbin/modprobe', '--', DRIVER], { signal })
  if (result.exitCode === 0) return
  throw new AgentError('INTERNAL', `driver ${DRIVER}: not loaded: ${result.stderr.trim()}`)
}

/**
 * Returns the device's IOMMU group. Unless the device is bound already, calls `beforeBind` and adds its rebinding to
 * `onFailure`. Throws INTERNAL when it has no IOMMU group or another driver takes it.
 */
export async function bindToVfio(
  files: Files,
  address: string,
  { beforeBind, onFailure }: { readonly beforeBind: (address: string) => void; readonly onFailure: UndoList },
): Promise<string> {
  const device = `${PCI}/devices/${address}`
  if ((await files.lstat(`${device}/iommu_group`)) === undefined) {
    throw new AgentError(
      'INTERNAL',
      `failed to get VFIO group of ${address}: the guest has no IOMMU for this device`,
    )
  }
  const group = lastComponent(await files.readLink(`${device}/iommu_group`))
  if ((await driverOf(files, device)) === DRIVER) return group
  beforeBind(address)
  onFailure.add(`rebind ${address} to its driver`, () => bindBack(files, address))
  await rebind(files, address, DRIVER)
  const driver = await driverOf(files, device)
  if (driver === DRIVER) return group
  throw new AgentError('INTERNAL', `PCI device ${address}: bound to ${driver ?? 'no driver'}, want ${DRIVER}`)
}

export async function bindBack(files: Files, address: string): Promise<void> {
  await rebind(files, address, '')
}

/** An empty `driver` lets any driver bind the device. */
async function rebind(files: Files, address: string, driver: string): Promise<void> {
  const device = `${PCI}/devices/${address}`
  // An empty line removes the override.
  await files.write(`${device}/driver_override`, driver === '' ? '\n' : driver)
  if ((await driverOf(files, device)) !== undefined) await files.write(`${device}/driver/unbind`, address)
  await files.write(`${PCI}/drivers_probe`, address)
}

async function driverOf(files: Files, device: string): Promise<string | undefined> {
  const link = `${device}/driver`
  return (await files.lstat(link)) === undefined ? undefined : lastComponent(await files.readLink(link))
}

function lastComponent(path: string): string {
  return path.slice(path.lastIndexOf('/') + 1)
}
