import { messageOf } from '../../base/errors.ts'
import type { BootContext, StepOutcome } from './step.ts'

/** Drivers of what hosts add most, there before it comes. Others are loaded when their device is seen (src/hotplug). */
const HOTPLUG_DRIVERS: readonly string[] = ['virtio_blk', 'virtio_net']

/** Where qemu_fw_cfg shows what the host has put into the machine's firmware. */
export const FIRMWARE_ROOT = '/sys/firmware/qemu_fw_cfg'

/** Loads the drivers of what the host may plug in, and of the firmware that it may have put VM metadata into. */
export async function loadDeviceDrivers(context: BootContext): Promise<StepOutcome> {
  const drivers = [...HOTPLUG_DRIVERS, ...(await firmwareDriver(context))]
  return loadModules(context, [...(await virtioBuses(context)), ...drivers])
}

/** A built-in driver is no module, but its folder is there. */
async function firmwareDriver({ config, os }: BootContext): Promise<readonly string[]> {
  if (config.metadata === 'off' || (await os.files.stat(FIRMWARE_ROOT)) !== undefined) return []
  return ['qemu_fw_cfg']
}

/** The drivers of the buses that virtio devices of this machine sit on. */
export async function virtioBuses({ os }: BootContext): Promise<readonly string[]> {
  const [pci, platform] = await Promise.all([
    os.files.list('/sys/bus/pci/devices'),
    os.files.list('/sys/bus/platform/devices'),
  ])
  return [
    ...(pci.length > 0 ? ['virtio_pci'] : []),
    // LNRO0005 is virtio-mmio's ACPI id, virtio-mmio.N what the kernel command line declares.
    ...(platform.some((name) => /^(LNRO0005|virtio-mmio)/.test(name)) ? ['virtio_mmio'] : []),
  ]
}

/**
 * Loads the kernel modules that are not there yet, all by one modprobe. A module that cannot be loaded is logged only:
 * it may be built in under another name, and what needs it reports its own failure.
 */
export async function loadModules(context: BootContext, names: readonly string[]): Promise<StepOutcome> {
  const { os, log } = context
  const loaded = await Promise.all(names.map((name) => os.files.stat(`/sys/module/${name}`)))
  const missing = names.filter((_, index) => loaded[index] === undefined)
  if (missing.length === 0) return 'already'
  try {
    const result = await os.tools.run(['/sbin/modprobe', '-a', ...missing])
    if (result.exitCode !== 0) {
      log.warn('kernel modules not loaded', { modules: missing.join(' '), stderr: result.stderr.trim() })
    }
  } catch (error) {
    log.warn('kernel modules not loaded', { modules: missing.join(' '), error: messageOf(error) })
  }
  return 'done'
}
