import { messageOf } from '../../base/errors.ts'
import type { BootContext, StepOutcome } from './step.ts'

/** Drivers of the devices that hosts plug in most often. Others are loaded when their device appears (src/hotplug). */
const HOTPLUG_DRIVERS: readonly string[] = ['virtio_blk', 'virtio_net']

/** qemu_fw_cfg shows the items of the firmware configuration below this folder. */
export const FIRMWARE_ROOT = '/sys/firmware/qemu_fw_cfg'

export async function loadVsock(context: BootContext): Promise<StepOutcome> {
  const loopback = context.config.vsockAllowLoopback ? ['vsock_loopback'] : []
  return loadModules(context, [
    ...(await virtioBuses(context)),
    'vsock',
    'vmw_vsock_virtio_transport',
    ...loopback,
  ])
}

export async function loadNetworkDriver(context: BootContext): Promise<StepOutcome> {
  return loadModules(context, [...(await virtioBuses(context)), 'virtio_net'])
}

export async function loadDeviceDrivers(context: BootContext): Promise<StepOutcome> {
  const drivers = [...HOTPLUG_DRIVERS, ...(await firmwareDriver(context))]
  return loadModules(context, [...(await virtioBuses(context)), ...drivers])
}

/** A driver that is built into the kernel shows only by its folder. */
async function firmwareDriver({ config, os }: BootContext): Promise<readonly string[]> {
  if (config.metadata === 'off' || (await os.files.stat(FIRMWARE_ROOT)) !== undefined) return []
  return ['qemu_fw_cfg']
}

async function virtioBuses({ os }: BootContext): Promise<readonly string[]> {
  const [pci, platform] = await Promise.all([
    os.files.list('/sys/bus/pci/devices'),
    os.files.list('/sys/bus/platform/devices'),
  ])
  return [
    ...(pci.length > 0 ? ['virtio_pci'] : []),
    // LNRO0005 is virtio-mmio's ACPI id; virtio-mmio.N is a device that the kernel command line declares.
    ...(platform.some((name) => /^(LNRO0005|virtio-mmio)/.test(name)) ? ['virtio_mmio'] : []),
  ]
}

/** A failure is only logged: the module may be built in under another name, and its user reports a failure of its own. */
async function loadModules(context: BootContext, names: readonly string[]): Promise<StepOutcome> {
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
